//! The `normalize` preprocessing of a query, identical to that of the agent execution contract.

use unicode_normalization::{UnicodeNormalization, char::canonical_combining_class};
use unicode_properties::{GeneralCategoryGroup, UnicodeGeneralCategory};

/// Applies NFKD, drops combining marks, lowercases, and joins runs of letters and numbers with single spaces.
///
/// [`char::is_alphanumeric`] differs: it also accepts vowel signs of many scripts, unlike Python, whose rule the
/// contract uses.
#[must_use]
pub fn normalize(query: &str) -> String {
    let without_marks: String = query.nfkd().filter(|&char| canonical_combining_class(char) == 0).collect();
    // Lowercases the whole text at once, because the form of a final sigma depends on its neighbours.
    let small = without_marks.to_lowercase();
    let tokens = small.split(|char: char| !is_letter_or_number(char)).filter(|token| !token.is_empty());
    tokens.collect::<Vec<_>>().join(" ")
}

pub(super) fn is_letter_or_number(char: char) -> bool {
    match char.general_category_group() {
        GeneralCategoryGroup::Letter | GeneralCategoryGroup::Number => true,
        GeneralCategoryGroup::Mark
        | GeneralCategoryGroup::Punctuation
        | GeneralCategoryGroup::Symbol
        | GeneralCategoryGroup::Separator
        | GeneralCategoryGroup::Other => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Vectors recorded from the contract's engine.
    #[test]
    fn the_vectors_of_the_contract() {
        let vectors = [
            ("Raúl!!!", "raul"),
            ("C++ & Rust_lang 2.0", "c rust lang 2 0"),
            ("ﬁancé ½ x² Ⅳ", "fiance 1 2 x2 iv"),
            ("İSTANBUL ΣΑΣ straße", "istanbul σας straße"),
            ("हिन्दी भाषा", "ह नद भ ष"),
            ("日本語 テスト！ｶﾞ", "日本語 テスト カ"),
            ("１２３", "123"),
            ("a'b’c—d", "a b c d"),
            ("เก้า", "เกา"),
            ("한국어", "\u{1112}\u{1161}\u{11ab}\u{1100}\u{116e}\u{11a8}\u{110b}\u{1165}"),
            ("œuvre", "œuvre"),
            ("ñandú-", "nandu"),
            ("🙂", ""),
        ];
        for (given, expected) in vectors {
            assert_eq!(normalize(given), expected, "{given}");
        }
    }

    #[test]
    fn separators_of_every_kind_become_one_space() {
        assert_eq!(normalize("  a\u{a0}\u{2003}b\t\r\nc\u{200b}d  "), "a b c d");
        assert_eq!(normalize(""), "");
    }

    #[test]
    fn numbers_without_digits_are_kept() {
        // Roman, circled and runic numbers, and a fraction that does not decompose.
        assert_eq!(normalize("ↀ ② ᛮ ৴"), "ↀ 2 ᛮ ৴");
    }
}
