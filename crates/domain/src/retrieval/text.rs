//! Number format of the contract's engine.

/// Formats a number with twelve significant digits, like C's `%.12g`.
#[must_use]
pub fn twelve_digits(number: f64) -> String {
    const DIGITS: i32 = 12;
    let scientific = format!("{number:.11e}");
    let Some((mantissa, exponent)) = scientific.split_once('e') else { return scientific };
    let exponent: i32 = exponent.parse().unwrap_or_default();
    if (-4..DIGITS).contains(&exponent) {
        let decimals = usize::try_from(DIGITS - 1 - exponent).unwrap_or_default();
        return without_trailing_zeros(&format!("{number:.decimals$}")).to_owned();
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{}e{sign}{:02}", without_trailing_zeros(mantissa), exponent.abs())
}

fn without_trailing_zeros(number: &str) -> &str {
    if number.contains('.') { number.trim_end_matches('0').trim_end_matches('.') } else { number }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_twelve_significant_digits() {
        let cases = [
            (1.0, "1"),
            (0.25, "0.25"),
            (1e-7, "1e-07"),
            (0.1 + 0.2, "0.3"),
            (-0.0001, "-0.0001"),
            (0.00001, "1e-05"),
            (123_456_789_012.5, "123456789012"),
            (1_234_567_890_123.0, "1.23456789012e+12"),
            (0.0, "0"),
            (-0.0, "-0"),
            (1e100, "1e+100"),
            (0.123_456_789_012_345, "0.123456789012"),
            (999_999_999_999.9, "1e+12"),
        ];
        for (number, expected) in cases {
            assert_eq!(twelve_digits(number), expected, "{number}");
        }
    }
}
