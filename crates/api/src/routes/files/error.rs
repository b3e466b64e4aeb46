//! Errors of files.

use axum::http::StatusCode;
use longhaul_config::FilesConfig;
use longhaul_files::FilesError;
use strum::{IntoStaticStr, VariantNames};

use crate::error::{ApiError, AreaError};

#[derive(Debug, thiserror::Error, IntoStaticStr, VariantNames)]
#[strum(serialize_all = "snake_case")]
pub(crate) enum FileError {
    #[error("{0}")]
    UnsupportedFileType(String),
    #[error("the quota of files is used up; delete some")]
    FileQuotaExceeded,
    #[error("the store of files does not answer; try again")]
    FileStoreUnavailable,
}

impl AreaError for FileError {
    fn code(&self) -> &'static str {
        self.into()
    }

    fn status(&self) -> StatusCode {
        match self {
            Self::UnsupportedFileType(_) => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Self::FileQuotaExceeded => StatusCode::CONFLICT,
            Self::FileStoreUnavailable => StatusCode::SERVICE_UNAVAILABLE,
        }
    }
}

impl From<FilesError> for ApiError {
    fn from(error: FilesError) -> Self {
        match error {
            FilesError::Store(error) => error.into(),
            FilesError::Objects(_) => {
                let cause = std::error::Error::source(&error).map(ToString::to_string);
                tracing::warn!(error = %error, cause, "request failed: the object store does not answer");
                FileError::FileStoreUnavailable.into()
            }
            FilesError::Corrupt { .. } => {
                tracing::error!(error = %error, "request failed");
                Self::Internal
            }
            FilesError::OverQuota => FileError::FileQuotaExceeded.into(),
            FilesError::TooLarge => Self::PayloadTooLarge { limit_bytes: FilesConfig::FILE_BYTES },
        }
    }
}
