//! The methods of enums whose names are stored, shown or sent. `strum` derives the names from the list of variants.

/// Gives enums `ALL`, `as_str` and `parse`. Their `strum` derives are `Display`, `EnumString`, `IntoStaticStr` and
/// `VariantArray`. With the feature `sqlx`, queries read them from text.
#[macro_export]
macro_rules! named {
    ($($name:ident),+) => {$(
        impl $name {
            /// All variants, in the order of the docs.
            pub const ALL: &'static [Self] = <Self as ::strum::VariantArray>::VARIANTS;

            /// Name as stored and shown.
            #[must_use]
            pub fn as_str(self) -> &'static str {
                self.into()
            }

            /// Parses a name; `None` if unknown.
            #[must_use]
            pub fn parse(name: &str) -> Option<Self> {
                name.parse().ok()
            }
        }

        $crate::stored!($name);
    )+};
}

/// Lets queries read an enum from its name.
#[cfg(feature = "sqlx")]
#[doc(hidden)]
#[macro_export]
macro_rules! stored {
    ($name:ident) => {
        impl $crate::sqlx::Type<$crate::sqlx::Postgres> for $name {
            fn type_info() -> $crate::sqlx::postgres::PgTypeInfo {
                <str as $crate::sqlx::Type<$crate::sqlx::Postgres>>::type_info()
            }

            fn compatible(of: &$crate::sqlx::postgres::PgTypeInfo) -> bool {
                <str as $crate::sqlx::Type<$crate::sqlx::Postgres>>::compatible(of)
            }
        }

        impl $crate::sqlx::Decode<'_, $crate::sqlx::Postgres> for $name {
            fn decode(
                value: $crate::sqlx::postgres::PgValueRef<'_>,
            ) -> ::std::result::Result<Self, $crate::sqlx::error::BoxDynError> {
                let name = <&str as $crate::sqlx::Decode<'_, $crate::sqlx::Postgres>>::decode(value)?;
                Ok(Self::parse(name).ok_or_else(|| $crate::UnknownName::new(stringify!($name), name))?)
            }
        }
    };
}

#[cfg(not(feature = "sqlx"))]
#[doc(hidden)]
#[macro_export]
macro_rules! stored {
    ($name:ident) => {};
}

/// A stored name that is none of its enum, of a newer release perhaps.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the {of} `{name}` is unknown")]
pub struct UnknownName {
    of: &'static str,
    name: String,
}

impl UnknownName {
    /// `name` is no variant of the enum `of`.
    #[must_use]
    pub fn new(of: &'static str, name: &str) -> Self {
        Self { of, name: name.to_owned() }
    }
}
