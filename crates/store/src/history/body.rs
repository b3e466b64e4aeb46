//! Storage of exact bytes: plain when short, LZ4-compressed when that is smaller. jsonb would change the bytes.
//!
//! The first byte is a header: its lowest bit is the compression, the other seven bits are the journal format of
//! a step, minus one. So a step states its format without another byte or column, and bodies of format 1 look as
//! they did before format 2.

use crate::StoreError;
use longhaul_domain::JOURNAL_FORMAT;

const PLAIN: u8 = 0;
const LZ4: u8 = 1;
/// Highest format that seven bits hold.
const MAX_FORMAT: u8 = 128;
const _: () = assert!(JOURNAL_FORMAT >= 1 && JOURNAL_FORMAT <= MAX_FORMAT);
/// Length in bytes below which compression gains nothing.
const COMPRESS_FROM: usize = 256;
/// Most bytes of a body; a length prefix beyond it is corruption, not a reason to allocate.
const MAX_BODY: usize = 256 * 1024 * 1024;

/// Encodes the body of a step, in the journal format of this release.
#[must_use]
pub fn encode_step(bytes: &[u8]) -> Vec<u8> {
    stamp(encode(bytes), JOURNAL_FORMAT)
}

fn stamp(mut stored: Vec<u8>, format: u8) -> Vec<u8> {
    if let Some(first) = stored.first_mut() {
        *first |= (format - 1) << 1;
    }
    stored
}

/// Journal format of a stored step.
#[must_use]
pub fn format_of(stored: &[u8]) -> u8 {
    stored.first().map_or(1, |first| (first >> 1) + 1)
}

/// Encodes bytes for a `body` column that is not a step's.
#[must_use]
pub fn encode(bytes: &[u8]) -> Vec<u8> {
    if bytes.len() >= COMPRESS_FROM {
        let packed = lz4_flex::compress_prepend_size(bytes);
        if packed.len() < bytes.len() {
            return [&[LZ4], packed.as_slice()].concat();
        }
    }
    [&[PLAIN], bytes].concat()
}

/// Decodes the result of [`encode`] or [`encode_step`], in any format; the caller interprets the bytes.
///
/// # Errors
/// The bytes do not have that form.
pub fn decode(stored: &[u8]) -> Result<Vec<u8>, StoreError> {
    match stored.split_first() {
        Some((first, bytes)) if first & 1 == PLAIN => Ok(bytes.to_vec()),
        Some((_, packed)) => {
            let size = packed.first_chunk::<4>().map(|size| u32::from_le_bytes(*size) as usize);
            if size.is_none_or(|size| size > MAX_BODY) {
                return Err(StoreError::Corrupt("a compressed body states an impossible size".into()));
            }
            lz4_flex::decompress_size_prepended(packed).map_err(|error| StoreError::Corrupt(error.to_string()))
        }
        None => Err(StoreError::Corrupt("a body is empty".into())),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn every_body_comes_back_byte_equal(bytes: Vec<u8>, repeat in 0_usize..64) {
            let bytes = bytes.repeat(repeat);
            prop_assert_eq!(decode(&encode(&bytes)).unwrap(), bytes);
        }

        #[test]
        fn every_format_round_trips_its_bytes(bytes: Vec<u8>, repeat in 0_usize..64, format in 1..=MAX_FORMAT) {
            let bytes = bytes.repeat(repeat);
            let stored = stamp(encode(&bytes), format);
            prop_assert_eq!(format_of(&stored), format);
            prop_assert_eq!(decode(&stored).unwrap(), bytes);
        }
    }

    #[test]
    fn format_1_has_no_mark_of_its_own() {
        assert_eq!(stamp(encode(b"{}"), 1), [PLAIN, b'{', b'}']);
        assert_eq!(format_of(&encode(&[b'a'; 1_000])), 1);
    }

    #[test]
    fn corruption_is_an_error() {
        for bad in [&[][..], &[7, 1], &[LZ4], &[LZ4, 0xff, 0xff, 0xff, 0xff, 0]] {
            assert!(decode(bad).is_err());
        }
    }
}
