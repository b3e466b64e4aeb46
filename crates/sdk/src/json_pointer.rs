//! Members of JSON pointers ([RFC 6901](https://www.rfc-editor.org/rfc/rfc6901)).

use std::borrow::Cow;

/// Escapes the name of a member, to be put between the slashes of a pointer.
///
/// ```
/// use longhaul_sdk::json_pointer::{name, token};
///
/// assert_eq!(token("a/b~c"), "a~1b~0c");
/// assert_eq!(name("a~1b~0c"), "a/b~c");
/// ```
#[must_use]
pub fn token(name: &str) -> Cow<'_, str> {
    if name.contains(['~', '/']) { name.replace('~', "~0").replace('/', "~1").into() } else { name.into() }
}

/// Returns the name of the member that a [`token`] stands for.
#[must_use]
pub fn name(token: &str) -> Cow<'_, str> {
    if token.contains('~') { token.replace("~1", "/").replace("~0", "~").into() } else { token.into() }
}
