//! Files in a request: the bytes that it sends, and their form in text. A model that does not take a file, or a file
//! whose bytes are not at hand, is sent its description.

use std::{borrow::Cow, collections::BTreeMap, fmt};

use base64::{display::Base64Display, engine::general_purpose::STANDARD};
use bytes::Bytes;
use longhaul_domain::message::{FileKind, FileRef};
use longhaul_sdk::spec::{FileInput, ModelSpec};
use parking_lot::Mutex;
use serde::{Serialize, Serializer};

/// No files.
pub static NO_FILES: RequestFiles = RequestFiles { bytes: Mutex::new(BTreeMap::new()) };

/// The bytes of a request's files by hash. They are in memory until the request was sent.
#[derive(Default)]
pub struct RequestFiles {
    bytes: Mutex<BTreeMap<String, Bytes>>,
}

impl fmt::Debug for RequestFiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RequestFiles").field("hashes", &self.bytes.lock().len()).finish()
    }
}

impl RequestFiles {
    #[must_use]
    pub fn new(bytes: BTreeMap<String, Bytes>) -> Self {
        Self { bytes: Mutex::new(bytes) }
    }

    /// True if a request to the model of `spec` sends the bytes of this file.
    #[must_use]
    pub fn takes(spec: &ModelSpec, file: &FileRef) -> bool {
        match file.kind() {
            FileKind::Image => spec.accepts.contains(&FileInput::Images),
            FileKind::Pdf => spec.accepts.contains(&FileInput::Pdf),
            // Sent as text.
            FileKind::Text => true,
            FileKind::Other => false,
        }
    }

    /// Drops the bytes: the request was sent, and its reply may take minutes.
    pub fn release(&self) {
        self.bytes.lock().clear();
    }

    fn get(&self, file: &FileRef) -> Option<Bytes> {
        self.bytes.lock().get(&file.hash).cloned()
    }

    /// The file in the form in which it is sent.
    pub(crate) fn sent<'a>(&self, file: &'a FileRef) -> SentFile<'a> {
        let described = || SentFile::Text(Cow::Owned(file.description()));
        let Some(bytes) = self.get(file) else { return described() };
        match file.kind() {
            FileKind::Image => SentFile::Image(Encoded { file, bytes }),
            FileKind::Pdf => SentFile::Pdf(Encoded { file, bytes }),
            FileKind::Text => match std::str::from_utf8(&bytes) {
                Ok(text) => {
                    let end = file.name_or("without a name");
                    SentFile::Text(Cow::Owned(format!("{}\n{text}\n[end of file {end}]", file.description())))
                }
                Err(_) => described(),
            },
            FileKind::Other => described(),
        }
    }
}

/// A file in the form in which it is sent.
pub(crate) enum SentFile<'a> {
    /// The description, or a text file with its text.
    Text(Cow<'a, str>),
    Image(Encoded<'a>),
    Pdf(Encoded<'a>),
}

/// Bytes that are sent as base64. They are encoded while they are written: a text of its own would be a third copy.
pub(crate) struct Encoded<'a> {
    pub(crate) file: &'a FileRef,
    bytes: Bytes,
}

impl Encoded<'_> {
    fn base64(&self) -> Base64Display<'_, 'static, base64::engine::GeneralPurpose> {
        Base64Display::new(&self.bytes, &STANDARD)
    }
}

/// The bytes as base64.
pub(crate) fn base64<S: Serializer>(encoded: &Encoded<'_>, to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(&encoded.base64())
}

/// A `data:` URL with the bytes.
pub(crate) struct DataUrl<'a>(pub(crate) Encoded<'a>);

impl Serialize for DataUrl<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(&format_args!("data:{};base64,{}", self.0.file.media_type, self.0.base64()))
    }
}
