//! Ids of responses. A response is a part of an execution: `resp_` and the execution's 32 hexadecimal digits for the
//! first answer, and `resp_<digits>_<n>` for the answer to its n-th continuation.

use std::{fmt, str::FromStr};

/// Prefix of every id of a response.
const PREFIX: &str = "resp_";
/// Hexadecimal digits of an execution's id.
const DIGITS: usize = 32;

/// The id of a response.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ResponseId {
    /// The execution's id, as 32 lowercase hexadecimal digits.
    execution: String,
    leg: u32,
}

/// A text that is no id of a response of this server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InvalidResponseId;

impl ResponseId {
    /// The id of an answer of an execution; `leg` is 0 for the first answer. `None` if `execution` is not the text of
    /// a uuid, with or without dashes.
    #[must_use]
    pub fn new(execution: &str, leg: u32) -> Option<Self> {
        let execution = execution.replace('-', "").to_ascii_lowercase();
        is_hex(&execution).then_some(Self { execution, leg })
    }

    /// The execution's id, as 32 lowercase hexadecimal digits.
    #[must_use]
    pub fn execution(&self) -> &str {
        &self.execution
    }

    /// Continuations before this answer.
    #[must_use]
    pub fn leg(&self) -> u32 {
        self.leg
    }
}

impl fmt::Display for ResponseId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.leg {
            0 => write!(f, "{PREFIX}{}", self.execution),
            leg => write!(f, "{PREFIX}{}_{leg}", self.execution),
        }
    }
}

impl FromStr for ResponseId {
    type Err = InvalidResponseId;

    fn from_str(text: &str) -> Result<Self, InvalidResponseId> {
        let rest = text.strip_prefix(PREFIX).ok_or(InvalidResponseId)?;
        let (execution, leg) = match rest.split_once('_') {
            None => (rest, 0),
            Some((execution, leg)) => (execution, leg.parse().map_err(|_| InvalidResponseId)?),
        };
        let id = Self { execution: execution.to_owned(), leg };
        // One answer has one id: no sign, no leading zero, no `_0`.
        (is_hex(execution) && id.to_string() == text).then_some(id).ok_or(InvalidResponseId)
    }
}

fn is_hex(text: &str) -> bool {
    text.len() == DIGITS && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEX: &str = "019a2c3e5b7f7d10a1b2c3d4e5f60718";

    #[test]
    fn ids_are_read_as_they_are_written() {
        for leg in [0, 1, 17, u32::MAX] {
            let id = ResponseId::new("019A2C3E-5b7f-7d10-a1b2-c3d4e5f60718", leg).unwrap();
            assert_eq!((id.execution(), id.leg()), (HEX, leg));
            assert_eq!(id.to_string().parse(), Ok(id));
        }
        assert_eq!(ResponseId::new("x", 0), None);
    }

    #[test]
    fn everything_else_is_refused() {
        let odd = [
            String::new(),
            HEX.to_owned(),
            format!("resp_{HEX}_0"),
            format!("resp_{HEX}_01"),
            format!("resp_{HEX}_+1"),
            format!("resp_{HEX}_"),
            format!("resp_{HEX}_4294967296"),
            format!("resp_{HEX}_1_1"),
            format!("resp_{}", HEX.to_uppercase()),
            format!("resp_{HEX}a"),
            format!("resp_{}é", &HEX[..30]),
            "resp_68a1b2".to_owned(),
        ];
        for text in odd {
            assert_eq!(text.parse::<ResponseId>(), Err(InvalidResponseId), "{text}");
        }
    }
}
