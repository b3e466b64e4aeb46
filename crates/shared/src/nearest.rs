//! "did you mean": the known name that is most like an unknown one.

/// The name at the smallest distance, if at most a third of its characters differ.
///
/// ```
/// use longhaul_shared::nearest::nearest;
///
/// let names = ["mail-triage", "invoice"];
/// assert_eq!(nearest("mail-trige", names), Some("mail-triage"));
/// assert_eq!(nearest("triage-mail", names), None);
/// assert_eq!(nearest("invoice", names), None, "it is known");
/// ```
pub fn nearest<'a>(asked: &str, names: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let limit = asked.chars().count().max(3) / 3;
    let measured = names.into_iter().map(|name| (strsim::damerau_levenshtein(asked, name), name));
    let (_, name) = measured.filter(|(distance, _)| (1..=limit).contains(distance)).min()?;
    Some(name)
}
