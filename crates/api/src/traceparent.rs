//! The W3C trace context under which an execution is submitted.

use axum::http::HeaderMap;
use longhaul_telemetry::trace;

/// The context of the request's span or, where this process exports no traces, the caller's header.
pub(crate) fn traceparent_of(headers: &HeaderMap) -> Option<String> {
    trace::current_traceparent().or_else(|| incoming(headers))
}

/// The `traceparent` header, if it is well-formed version 00.
fn incoming(headers: &HeaderMap) -> Option<String> {
    let text = headers.get("traceparent")?.to_str().ok()?;
    let lengths: Vec<usize> = text.split('-').map(str::len).collect();
    let is_hex = text.bytes().all(|byte| byte == b'-' || byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte));
    (lengths == [2, 32, 16, 2] && is_hex && text.starts_with("00-")).then(|| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_wellformed_traceparent_is_kept() {
        let read = |text: &str| {
            let mut headers = HeaderMap::new();
            headers.insert("traceparent", text.parse().unwrap());
            incoming(&headers)
        };
        let good = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        assert_eq!(read(good).as_deref(), Some(good));
        for bad in ["", "00-zz-b7-01", &good.replace("00-", "ff-"), &good.to_uppercase()] {
            assert_eq!(read(bad), None, "{bad}");
        }
    }
}
