//! Encrypts secrets stored in the database (ChaCha20-Poly1305) under keys kept outside it.
//!
//! A backend may send a provider's key as literal text, and a worker needs it later. The stored form is
//! `sealed:v1:` plus nonce and ciphertext; only [`Sealer::open`] reveals it, which a worker calls just before the
//! request. The first key seals and every key opens, so a key is rotated by putting the new one first.

use std::{fmt, sync::Arc};

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use secrecy::{ExposeSecret, SecretString};
use sha2::{Digest, Sha256};

/// Prefix of a sealed secret.
pub const SEALED: &str = "sealed:";
const VERSION: &str = "sealed:v1:";
/// Additional authenticated data: binds a sealed text to this purpose.
const PURPOSE: &[u8] = b"longhaul secret of a platform binding";
/// Longest secret, in bytes.
const MAX_BYTES: usize = 8 * 1024;

/// Seals and opens secrets. Cheap to clone.
#[derive(Clone)]
pub struct Sealer(Arc<[LessSafeKey]>);

/// Reason why sealing or opening failed. Never contains the secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SealError {
    /// No key is configured.
    #[error(
        "a literal secret cannot be stored: the setting contract.secret_keys is empty; set it, or write env://NAME"
    )]
    NoKey,
    /// The secret is longer than `MAX_BYTES`.
    #[error("a secret is longer than 8 KiB")]
    TooLong,
    /// The text was sealed under another key, or was changed.
    #[error("a sealed secret does not open under contract.secret_keys")]
    DoesNotOpen,
    /// The operating system returned no random bytes.
    #[error("no random bytes")]
    NoRandomness,
}

impl fmt::Debug for Sealer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Sealer({} keys)", self.0.len())
    }
}

impl Default for Sealer {
    /// A sealer without keys: sealing and opening always fail.
    fn default() -> Self {
        Self(Arc::from([]))
    }
}

impl Sealer {
    /// Derives one key from each text (SHA-256); the texts may have any form.
    #[must_use]
    pub fn new(keys: &[SecretString]) -> Self {
        let made = keys.iter().filter_map(|text| {
            let bytes =
                Sha256::new().chain_update(PURPOSE).chain_update([0]).chain_update(text.expose_secret()).finalize();
            UnboundKey::new(&CHACHA20_POLY1305, &bytes).ok().map(LessSafeKey::new)
        });
        Self(made.collect())
    }

    /// Encrypts `secret` and returns the text to store.
    ///
    /// # Errors
    /// Fails if there is no key, the secret is too long, or the system has no randomness.
    pub fn seal(&self, secret: &str) -> Result<String, SealError> {
        let key = self.0.first().ok_or(SealError::NoKey)?;
        if secret.len() > MAX_BYTES {
            return Err(SealError::TooLong);
        }
        let mut nonce = [0; NONCE_LEN];
        getrandom::fill(&mut nonce).map_err(|_| SealError::NoRandomness)?;
        let mut text = secret.as_bytes().to_vec();
        key.seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), Aad::from(PURPOSE), &mut text)
            .map_err(|_| SealError::NoRandomness)?;
        Ok(format!("{VERSION}{}", URL_SAFE_NO_PAD.encode([&nonce[..], &text].concat())))
    }

    /// Decrypts a text made by [`Self::seal`].
    ///
    /// # Errors
    /// Fails if the text was sealed under another key, or was changed.
    pub fn open(&self, sealed: &str) -> Result<SecretString, SealError> {
        let text = sealed.trim().strip_prefix(VERSION).ok_or(SealError::DoesNotOpen)?;
        let bytes = URL_SAFE_NO_PAD.decode(text).map_err(|_| SealError::DoesNotOpen)?;
        let (nonce, text) = bytes.split_first_chunk::<NONCE_LEN>().ok_or(SealError::DoesNotOpen)?;
        self.0
            .iter()
            .find_map(|key| {
                let mut text = text.to_vec();
                let nonce = Nonce::assume_unique_for_key(*nonce);
                let opened = key.open_in_place(nonce, Aad::from(PURPOSE), &mut text).ok()?;
                std::str::from_utf8(opened).ok().map(SecretString::from)
            })
            .ok_or(SealError::DoesNotOpen)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sealer(keys: &[&str]) -> Sealer {
        Sealer::new(&keys.iter().map(|key| SecretString::from(*key)).collect::<Vec<_>>())
    }

    #[test]
    fn sealed_secret_opens_only_with_its_key() {
        let old = sealer(&["a key of the old days, long enough"]);
        let sealed = old.seal("sk-secret").unwrap();
        assert!(!sealed.contains("sk-secret") && sealed.is_ascii());
        assert_ne!(sealed, old.seal("sk-secret").unwrap(), "two sealings must not be alike");
        assert_eq!(old.open(&sealed).unwrap().expose_secret(), "sk-secret");
        let rotated = sealer(&["the new key, also long enough....", "a key of the old days, long enough"]);
        assert_eq!(rotated.open(&sealed).unwrap().expose_secret(), "sk-secret");
        assert_eq!(sealer(&["another key"]).open(&sealed).unwrap_err(), SealError::DoesNotOpen);
    }

    #[test]
    fn changed_seal_or_missing_key_is_refused() {
        let of = sealer(&["k"]);
        let sealed = of.seal("secret").unwrap();
        for bad in ["", "secret", "sealed:v1:", "sealed:v1:!!", &sealed[..sealed.len() - 2], &format!("{sealed}AA")] {
            assert_eq!(of.open(bad).unwrap_err(), SealError::DoesNotOpen, "{bad}");
        }
        assert_eq!(Sealer::default().seal("x"), Err(SealError::NoKey));
        assert_eq!(of.seal(&"x".repeat(MAX_BYTES + 1)), Err(SealError::TooLong));
    }
}
