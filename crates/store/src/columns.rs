//! Columns that hold a value in another form than the store's types. A query names the form (`body as "body: Packed"`)
//! and reads the value.

use std::time::Duration;

use longhaul_sdk::Usd;
use serde_json::{Map, Value};
use sqlx::{Decode, Postgres, ValueRef, error::BoxDynError, postgres::PgValueRef, types::Json};

use crate::history::body;

/// Billionths of a dollar.
#[derive(Debug, Clone, Copy, sqlx::Type)]
#[sqlx(transparent)]
pub(crate) struct Nanos(i64);

impl From<Nanos> for Usd {
    fn from(Nanos(nanos): Nanos) -> Self {
        Self::from_nanos(nanos)
    }
}

/// A number that is never negative.
pub(crate) struct Count(u64);

impl Decode<'_, Postgres> for Count {
    fn decode(value: PgValueRef<'_>) -> Result<Self, BoxDynError> {
        Ok(Self(u64::try_from(<i64 as Decode<Postgres>>::decode(value)?)?))
    }
}

impl From<Count> for u64 {
    fn from(Count(n): Count) -> Self {
        n
    }
}

/// Seconds; a time before their beginning counts as none.
#[derive(sqlx::Type)]
#[sqlx(transparent)]
pub(crate) struct Seconds(f64);

impl From<Seconds> for Duration {
    fn from(Seconds(seconds): Seconds) -> Self {
        Self::try_from_secs_f64(seconds).unwrap_or_default()
    }
}

/// Bytes that [`body::encode`] wrote, or nothing.
pub(crate) struct Packed<T = Vec<u8>>(T);

impl Decode<'_, Postgres> for Packed {
    fn decode(value: PgValueRef<'_>) -> Result<Self, BoxDynError> {
        Ok(Self(body::decode(<&[u8] as Decode<Postgres>>::decode(value)?)?))
    }
}

impl Decode<'_, Postgres> for Packed<Option<Vec<u8>>> {
    fn decode(value: PgValueRef<'_>) -> Result<Self, BoxDynError> {
        if value.is_null() {
            return Ok(Self(None));
        }
        Ok(Self(Some(Packed::<Vec<u8>>::decode(value)?.0)))
    }
}

impl From<Packed> for Vec<u8> {
    fn from(Packed(bytes): Packed) -> Self {
        bytes
    }
}

impl From<Packed<Option<Vec<u8>>>> for Option<Vec<u8>> {
    fn from(Packed(bytes): Packed<Option<Vec<u8>>>) -> Self {
        bytes
    }
}

/// A JSON array of texts.
#[derive(sqlx::Type)]
#[sqlx(transparent)]
pub(crate) struct Texts(Json<Vec<String>>);

impl From<Texts> for Vec<String> {
    fn from(Texts(texts): Texts) -> Self {
        texts.0
    }
}

/// A JSON object.
#[derive(sqlx::Type)]
#[sqlx(transparent)]
pub(crate) struct Object(Json<Map<String, Value>>);

impl From<Object> for Map<String, Value> {
    fn from(Object(object): Object) -> Self {
        object.0
    }
}
