//! The methods of enums whose names are stored, shown or sent. `strum` derives the names from the list of variants.

/// Gives enums `ALL`, `as_str` and `parse`. Their `strum` derives are `Display`, `EnumString`, `IntoStaticStr` and
/// `VariantArray`.
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
    )+};
}
