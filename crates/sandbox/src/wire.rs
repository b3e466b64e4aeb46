//! The wire format: parses and validates a request, and builds the object that answers it.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::{
    Map, Value, json,
    value::{RawValue, to_raw_value},
};

use crate::{
    job::{Captured, JobOutcome},
    options::{Language, Options},
    setup::Limit,
};

/// Minimum time limit of a run, in seconds.
const SHORTEST: f64 = 1.0;

/// A valid request.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) language: Language,
    pub(crate) code: String,
    /// JSON exactly as received: a number may exceed every Rust number type.
    pub(crate) input: Box<RawValue>,
    pub(crate) seconds: f64,
    pub(crate) allow_imports: bool,
}

/// An error in a request: a code of the contract, and a message.
#[derive(Debug)]
pub(crate) struct Invalid {
    pub(crate) code: &'static str,
    pub(crate) message: String,
}

pub(crate) fn invalid(code: &'static str, message: impl Into<String>) -> Invalid {
    Invalid { code, message: message.into() }
}

impl Request {
    /// # Errors
    /// Returns the first of the contract's codes that applies, in its order. `null` counts as absent.
    pub(crate) fn parse(body: &[u8], options: &Options) -> Result<Self, Invalid> {
        let mut body: BTreeMap<String, Box<RawValue>> = serde_json::from_slice(body)
            .map_err(|error| invalid("invalid_payload", format!("the body is not a JSON object: {error}")))?;
        let input = body.remove("input").unwrap_or_default();
        // Text that serde_json cannot parse (half a surrogate pair) becomes a value of the wrong type.
        let body: Map<String, Value> = body
            .into_iter()
            .map(|(name, value)| (name, serde_json::from_str(value.get()).unwrap_or(Value::Array(Vec::new()))))
            .collect();
        let language = language(&body, options)?;
        let code = code(&body, options)?;
        let timeout = seconds(body.get("timeout_seconds"), "invalid_timeout_seconds", "timeout_seconds")?;
        let policy = policy(&body)?;
        let timeout = match timeout {
            Some(timeout) => Some(timeout),
            None => seconds(policy.get("timeout_seconds"), "invalid_policy", "policy.timeout_seconds")?,
        };
        let seconds = timeout.unwrap_or(options.timeout.as_secs_f64());
        let allow_imports = flag(&policy, "allow_imports")?.unwrap_or(true);
        // Validated but without effect: the sandbox has no network.
        flag(&policy, "network_access")?;
        Ok(Self {
            language,
            code,
            input,
            seconds: seconds.clamp(SHORTEST, options.timeout_max.as_secs_f64()),
            allow_imports,
        })
    }

    /// Encodes the request for the harness.
    pub(crate) fn for_program(&self, result_bytes: usize) -> Vec<u8> {
        match self.language {
            Language::Python => {
                let (code, imports) = (json!(self.code), self.allow_imports);
                let (input, most) = (self.input.get(), result_bytes);
                let request = format!(
                    r#"{{"code": {code}, "input": {input}, "allow_imports": {imports}, "result_bytes": {most}}}"#
                );
                request.into_bytes()
            }
            // Neither the code nor JSON text contains NUL.
            Language::Bash => format!("{}\0{}\0", self.code, self.input.get()).into_bytes(),
        }
    }
}

fn language(body: &Map<String, Value>, options: &Options) -> Result<Language, Invalid> {
    let known = body.get("language").and_then(Value::as_str).and_then(Language::of);
    known.filter(|language| options.languages.contains(language)).ok_or_else(|| {
        let names: Vec<_> = options.languages.iter().map(|language| language.name()).collect();
        invalid("unsupported_language", format!("language must be one of: {}", names.join(", ")))
    })
}

fn code(body: &Map<String, Value>, options: &Options) -> Result<String, Invalid> {
    let wrong = |message: &str| Err(invalid("invalid_code", message));
    match body.get("code") {
        Some(Value::String(code)) if code.trim().is_empty() => wrong("code must not be empty"),
        Some(Value::String(code)) if code.contains('\0') => wrong("code must not contain NUL"),
        Some(Value::String(code)) if code.len() > options.code_bytes => {
            wrong(&format!("code must have at most {} bytes", options.code_bytes))
        }
        Some(Value::String(code)) => Ok(code.clone()),
        _ => wrong("code must be a text"),
    }
}

fn seconds(value: Option<&Value>, code: &'static str, name: &str) -> Result<Option<f64>, Invalid> {
    match value {
        None | Some(Value::Null) => Ok(None),
        Some(Value::Number(number)) => Ok(number.as_f64()),
        Some(_) => Err(invalid(code, format!("{name} must be a number"))),
    }
}

fn policy(body: &Map<String, Value>) -> Result<Map<String, Value>, Invalid> {
    match body.get("policy") {
        None | Some(Value::Null) => Ok(Map::new()),
        Some(Value::Object(policy)) => Ok(policy.clone()),
        Some(_) => Err(invalid("invalid_policy", "policy must be an object")),
    }
}

fn flag(policy: &Map<String, Value>, name: &str) -> Result<Option<bool>, Invalid> {
    match policy.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::Bool(flag)) => Ok(Some(*flag)),
        Some(_) => Err(invalid("invalid_policy", format!("policy.{name} must be true or false"))),
    }
}

/// Result of the code. All keys are the contract's and are always present.
#[derive(Debug, Serialize)]
pub(crate) struct Outcome {
    language: Language,
    stdout: String,
    stderr: String,
    result: Box<RawValue>,
    error: Option<RunError>,
    exit_code: Option<i32>,
    timed_out: bool,
}

/// Reason why the code has no result.
#[derive(Debug, Serialize)]
pub(crate) struct RunError {
    #[serde(rename = "type")]
    pub(crate) kind: String,
    pub(crate) message: String,
}

impl Outcome {
    /// The result as JSON text.
    pub(crate) fn result(&self) -> &str {
        self.result.get()
    }

    pub(crate) fn status(&self) -> u16 {
        match (&self.error, self.timed_out) {
            (_, true) => 504,
            (Some(_), false) => 400,
            (None, false) => 200,
        }
    }

    pub(crate) fn of(request: &Request, ended: &JobOutcome, options: &Options) -> Self {
        let (mut exit_code, result, error) = match ended.limit {
            Some(limit) => (Some(ended.exit_code), Box::default(), Some(over(limit, request.seconds, options))),
            None => match request.language {
                Language::Python => of_python(ended),
                Language::Bash => of_bash(ended, options),
            },
        };
        let timed_out = ended.limit == Some(Limit::Time);
        if timed_out {
            exit_code = None;
        }
        let (stdout, stderr) = (text(&ended.stdout), text(&ended.stderr));
        Self { language: request.language, stdout, stderr, result, error, exit_code, timed_out }
    }
}

type Parts = (Option<i32>, Box<RawValue>, Option<RunError>);

fn told(kind: &str, message: impl Into<String>) -> Option<RunError> {
    Some(RunError { kind: kind.to_owned(), message: message.into() })
}

/// Reads the report of the Python harness. The code can forge it, so it is trusted for nothing but the code's own
/// result.
fn of_python(ended: &JobOutcome) -> Parts {
    #[derive(serde::Deserialize)]
    struct Report {
        exit_code: i32,
        error: Option<Reported>,
        result: Box<RawValue>,
    }
    #[derive(serde::Deserialize)]
    struct Reported {
        r#type: String,
        message: String,
    }
    let failed = |code, kind: &str, message| (Some(code), Box::default(), told(kind, message));
    let unusable =
        |error: String| failed(1, "SandboxProcessError", format!("result cannot be returned as JSON: {error}"));
    match serde_json::from_slice::<Report>(&ended.answer) {
        Ok(Report { exit_code, error: None, result }) => match check(&result) {
            Ok(()) => (Some(exit_code), result, None),
            Err(error) => unusable(error),
        },
        Ok(Report { exit_code, error: Some(error), .. }) => failed(exit_code, &error.r#type, error.message),
        Err(_) if ended.answer.is_empty() => {
            let message = signalled(ended.exit_code)
                .unwrap_or_else(|| format!("the process ended with status {} before it had reported", ended.exit_code));
            failed(ended.exit_code, "SandboxProcessError", message)
        }
        Err(error) => unusable(error.to_string()),
    }
}

/// Refuses a result that most JSON readers cannot hold. An accepted one is passed on byte for byte.
fn check(result: &RawValue) -> Result<(), String> {
    let value: Value = serde_json::from_str(result.get()).map_err(|error| error.to_string())?;
    if has_finite_numbers(&value) { Ok(()) } else { Err("a number is beyond the range of a double".into()) }
}

fn has_finite_numbers(value: &Value) -> bool {
    match value {
        Value::Number(number) => number.as_f64().is_some_and(f64::is_finite),
        Value::Array(items) => items.iter().all(has_finite_numbers),
        Value::Object(members) => members.values().all(has_finite_numbers),
        Value::Null | Value::Bool(_) | Value::String(_) => true,
    }
}

/// Reads the Bash answer: `=` and the text of the variable, or nothing when it is not set.
fn of_bash(ended: &JobOutcome, options: &Options) -> Parts {
    let code = Some(ended.exit_code);
    if ended.exit_code != 0 {
        let message = signalled(ended.exit_code);
        let message = message.unwrap_or_else(|| format!("the script ended with status {}", ended.exit_code));
        return (code, Box::default(), told("ExitStatus", message));
    }
    let Some((_, result)) = ended.answer.split_first() else { return (code, Box::default(), None) };
    let result = to_raw_value(&String::from_utf8_lossy(result)).unwrap_or_default();
    if result.get().len() > options.result_bytes {
        let (size, most) = (result.get().len(), options.result_bytes);
        let message =
            format!("result cannot be returned as JSON: it has {size} bytes, of which at most {most} are returned");
        return (Some(1), Box::default(), told("SandboxProcessError", message));
    }
    (code, result, None)
}

/// Explains an exit status above 128.
fn signalled(exit_code: i32) -> Option<String> {
    match exit_code {
        // SIGXCPU.
        152 => Some("the code used more processor time than it may".to_owned()),
        code @ 129..=192 => Some(format!("the process was ended by signal {}", code - 128)),
        _ => None,
    }
}

pub(crate) fn over(limit: Limit, seconds: f64, options: &Options) -> RunError {
    let (kind, message) = match limit {
        Limit::Time => ("SandboxTimeout", format!("the code ran longer than {seconds} s")),
        Limit::Memory => {
            ("MemoryLimitExceeded", format!("the code used more than {} bytes of memory", options.memory_bytes))
        }
        Limit::Processes => {
            let message = format!("the code ran more than {} processes and threads", options.processes_max);
            ("ProcessLimitExceeded", message)
        }
        Limit::Files => {
            let (bytes, files) = (options.files_bytes, options.files_max);
            ("FileLimitExceeded", format!("the code wrote more than {bytes} bytes or {files} files"))
        }
        Limit::Output => {
            let message = format!("the code printed more than {} bytes and was stopped", options.flood_bytes());
            ("OutputLimitExceeded", message)
        }
    };
    RunError { kind: kind.to_owned(), message }
}

/// Returns the kept beginning of a stream, with a mark where it was cut.
pub(crate) fn text(captured: &Captured) -> String {
    let mut text = String::from_utf8_lossy(&captured.kept).into_owned();
    if captured.total > captured.kept.len() {
        // The cut may have split a character.
        while text.ends_with(char::REPLACEMENT_CHARACTER) {
            text.pop();
        }
        text.push_str(&format!("\n[truncated: {} of {} bytes]", captured.kept.len(), captured.total));
    }
    text
}
