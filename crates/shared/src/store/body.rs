//! How exact bytes are stored: as they are when short, LZ4-compressed when that is smaller. jsonb changes bytes; this does not.

use super::StoreError;

const PLAIN: u8 = 0;
const LZ4: u8 = 1;
/// Below this, compression gains nothing.
const COMPRESS_FROM: usize = 256;
/// No stored body is larger; a length prefix beyond it is corruption, not a reason to allocate.
const MAX_BODY: usize = 256 * 1024 * 1024;

/// Encodes bytes for a `body` column.
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

/// Decodes what [`encode`] made.
///
/// # Errors
/// The bytes are not of that form.
pub fn decode(stored: &[u8]) -> Result<Vec<u8>, StoreError> {
    match stored.split_first() {
        Some((&PLAIN, bytes)) => Ok(bytes.to_vec()),
        Some((&LZ4, packed)) => {
            let size = packed.first_chunk::<4>().map(|size| u32::from_le_bytes(*size) as usize);
            if size.is_none_or(|size| size > MAX_BODY) {
                return Err(StoreError::Corrupt("a compressed body states an impossible size".into()));
            }
            lz4_flex::decompress_size_prepended(packed).map_err(|error| StoreError::Corrupt(error.to_string()))
        }
        _ => Err(StoreError::Corrupt("a body has an unknown encoding".into())),
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
    }

    #[test]
    fn corruption_is_an_error() {
        for bad in [&[][..], &[7, 1], &[LZ4], &[LZ4, 0xff, 0xff, 0xff, 0xff, 0]] {
            assert!(decode(bad).is_err());
        }
    }
}
