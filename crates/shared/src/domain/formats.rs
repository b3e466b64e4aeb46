//! The numbers of the formats that processes of two releases share while one replaces the other (docs/upgrades.md).

/// The format in which this release writes steps. A step carries the number it was written in; who meets a higher one than it
/// knows hands the execution to a worker that knows it.
///
/// | format | what changed |
/// |---|---|
/// | 1 | the first |
pub const JOURNAL_FORMAT: u8 = 1;

/// What a worker must satisfy to go on from a journal of `format`. Every worker reads format 1.
#[must_use]
pub fn journal_requirement(format: u8) -> String {
    format!("journal:{format}")
}

/// What a worker satisfies that knows every format up to `format`.
pub fn journal_requirements(format: u8) -> impl Iterator<Item = String> {
    (2..=format).map(journal_requirement)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_serves_every_format_up_to_its_own() {
        assert_eq!(journal_requirements(1).count(), 0);
        assert_eq!(journal_requirements(3).collect::<Vec<_>>(), ["journal:2", "journal:3"]);
    }
}
