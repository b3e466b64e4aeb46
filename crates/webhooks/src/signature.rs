//! Secrets and signatures of [Standard Webhooks](https://www.standardwebhooks.com) 1.0.

use base64::{Engine, engine::general_purpose::STANDARD};
use hmac::{Hmac, KeyInit, Mac};
use longhaul_store::tenants::api_keys::Pepper;
use sha2::Sha256;
use uuid::Uuid;

/// Bytes of a secret of an endpoint. It is derived from the pepper of API keys and stored nowhere; with another pepper
/// it is another secret.
#[must_use]
pub fn secret(pepper: &Pepper, endpoint: Uuid, number: i32) -> Vec<u8> {
    pepper.mac("webhook secret", &[endpoint.as_bytes(), &number.to_be_bytes()])
}

/// A secret as receivers configure it.
#[must_use]
pub fn secret_text(secret: &[u8]) -> String {
    format!("whsec_{}", STANDARD.encode(secret))
}

/// The header `webhook-signature`: one signature for each secret. `timestamp` is in seconds since 1970.
#[must_use]
pub fn sign(secrets: &[Vec<u8>], id: &str, timestamp: i64, body: &str) -> String {
    let signed = secrets.iter().filter_map(|secret| {
        // HMAC takes keys of any length, so this cannot fail.
        let mut mac = Hmac::<Sha256>::new_from_slice(secret).ok()?;
        mac.update(format!("{id}.{timestamp}.{body}").as_bytes());
        Some(format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes())))
    });
    signed.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of the specification.
    #[test]
    fn signature_is_that_of_the_specification() {
        let secret = STANDARD.decode("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").unwrap();
        let body = r#"{"test": 2432232314}"#;
        let signed = sign(&[secret], "msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_330, body);
        assert_eq!(signed, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
    }
}
