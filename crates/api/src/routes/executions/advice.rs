//! Advice for a failure: the last column of the table in docs/reference/failures.md, by code.

use std::{collections::HashMap, sync::LazyLock};

/// Codes and advice. The documentation is the one place where they are written.
static ADVICE: LazyLock<HashMap<&'static str, &'static str>> = LazyLock::new(|| {
    let rows = include_str!("../../../../../docs/reference/failures.md").lines();
    let cells = rows.map(|row| row.trim_matches('|').split('|').map(str::trim).collect::<Vec<_>>());
    let of_codes = cells.filter_map(|cells| match cells[..] {
        [code, _, _, _, advice] => Some((code.strip_prefix('`')?.strip_suffix('`')?, advice)),
        _ => None,
    });
    of_codes.filter(|(_, advice)| *advice != "nothing").collect()
});

/// The advice for a code; `None` of one that a definition declares, or where nothing is to be done.
pub(super) fn advice(code: &str) -> Option<&'static str> {
    ADVICE.get(code).copied()
}

#[cfg(test)]
mod tests {
    use longhaul_sdk::failure::FailureCode;

    use super::*;

    #[test]
    fn every_built_in_code_has_advice() {
        for code in FailureCode::BUILT_IN {
            let is_over = [FailureCode::CANCELLED, FailureCode::HUMAN_REJECTED].contains(code);
            assert_eq!(advice(code.as_str()).is_some(), !is_over, "{code}");
        }
    }
}
