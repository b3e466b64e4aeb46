//! Converts HTML to text for a model: drops tags, puts blocks on lines of their own, and keeps links beside
//! their text.
//!
//! This is not a parser: malformed markup comes out as text. It cannot fail and takes linear time, which html2text
//! does not: a page of 1 MB of `<div>` took it more than a minute.

/// Elements whose content is dropped.
const SKIPPED: [&str; 6] = ["script", "style", "noscript", "template", "svg", "head"];
/// Elements that begin a line.
const BLOCKS: [&str; 27] = [
    "address",
    "article",
    "aside",
    "blockquote",
    "br",
    "dd",
    "div",
    "dl",
    "dt",
    "footer",
    "form",
    "h1",
    "h2",
    "h3",
    "h4",
    "h5",
    "h6",
    "header",
    "hr",
    "li",
    "main",
    "nav",
    "ol",
    "p",
    "section",
    "table",
    "tr",
];
/// Longest link shown, in bytes; longer ones are usually trackers.
const MAX_LINK_BYTES: usize = 300;

/// The readable text of a page.
pub(crate) fn to_text(html: &str) -> String {
    let mut page = Page::default();
    let mut rest = html;
    // No tag ends after the last `>`. Without this bound, each later `<` would be searched to the end:
    // quadratic time.
    let last_end = html.rfind('>').unwrap_or(0);
    while let Some(at) = rest.find('<') {
        if html.len() - rest.len() + at > last_end {
            break;
        }
        page.text(&rest[..at]);
        rest = &rest[at..];
        let Some((tag, after)) = tag(rest) else {
            page.text("<");
            rest = &rest[1..];
            continue;
        };
        rest = match tag {
            Tag::Comment => after,
            Tag::Open { name, .. } if SKIPPED.contains(&name.as_str()) => {
                let behind = skip_to_end_of(&name, after);
                if name == "head" {
                    page.title(&after[..after.len() - behind.len()]);
                }
                behind
            }
            Tag::Open { name, attributes } => {
                page.open(&name, attributes);
                after
            }
            Tag::Close { name } => {
                page.close(&name);
                after
            }
        };
    }
    page.text(rest);
    page.finish()
}

enum Tag<'a> {
    Open { name: String, attributes: &'a str },
    Close { name: String },
    Comment,
}

/// Parses the tag at the start of `text` and returns the rest; `None` if its `<` begins no tag.
fn tag(text: &str) -> Option<(Tag<'_>, &str)> {
    if let Some(comment) = text.strip_prefix("<!--") {
        // An unclosed comment swallows the rest, as in a browser.
        return Some((Tag::Comment, comment.split_once("-->").map_or("", |(_, after)| after)));
    }
    let inner = &text[1..];
    let first = inner.chars().next()?;
    if !first.is_ascii_alphabetic() && !matches!(first, '/' | '!' | '?') {
        return None;
    }
    let end = end_of_tag(inner)?;
    let (inner, after) = (&inner[..end], &inner[end + 1..]);
    let name_of = |text: &str| {
        let end = text.find(|c: char| !c.is_ascii_alphanumeric() && c != '-').unwrap_or(text.len());
        text[..end].to_ascii_lowercase()
    };
    let tag = match first {
        '/' => Tag::Close { name: name_of(&inner[1..]) },
        '!' | '?' => Tag::Comment,
        _ => {
            let name = name_of(inner);
            let attributes = &inner[name.len()..];
            Tag::Open { name, attributes }
        }
    };
    Some((tag, after))
}

/// Offset of the tag's `>`, skipping quoted attributes. A quote that never closes is ignored.
fn end_of_tag(inner: &str) -> Option<usize> {
    let mut quote = None;
    for (at, byte) in inner.bytes().enumerate() {
        match (quote, byte) {
            (None, b'>') => return Some(at),
            (None, b'"' | b'\'') if inner[..at].trim_end().ends_with('=') => quote = Some(byte),
            (Some(open), _) if open == byte => quote = None,
            _ => {}
        }
    }
    // Unclosed quote: end the tag at the first `>`. A browser would treat the rest of the page as one tag.
    inner.find('>')
}

/// The text after the end tag of a skipped element; empty if the element never ends.
fn skip_to_end_of<'a>(name: &str, text: &'a str) -> &'a str {
    let mut rest = text;
    while let Some(at) = rest.find("</") {
        rest = &rest[at + 2..];
        let is_end = rest.get(..name.len()).is_some_and(|found| found.eq_ignore_ascii_case(name));
        if is_end {
            return rest.find('>').map_or("", |end| &rest[end + 1..]);
        }
    }
    ""
}

#[derive(Default)]
struct Page {
    out: String,
    link: Option<String>,
    pre: usize,
}

impl Page {
    fn title(&mut self, head: &str) {
        let lower_at = |needle: &str| {
            head.as_bytes().windows(needle.len()).position(|window| window.eq_ignore_ascii_case(needle.as_bytes()))
        };
        let (Some(start), Some(end)) = (lower_at("<title>"), lower_at("</title>")) else { return };
        if let Some(title) = head.get(start + "<title>".len()..end) {
            self.text(title);
            self.line();
        }
    }

    fn open(&mut self, name: &str, attributes: &str) {
        if name == "pre" {
            self.line();
            self.pre += 1;
        } else if name == "a" {
            self.link = attribute(attributes, "href").filter(|link| is_worth_showing(link));
        } else if name == "td" || name == "th" {
            self.out.push('\t');
        } else if BLOCKS.contains(&name) {
            self.line();
            if name == "li" {
                self.out.push_str("- ");
            }
        }
    }

    fn close(&mut self, name: &str) {
        if name == "a" {
            if let Some(link) = self.link.take() {
                self.out.push_str(&format!(" ({link})"));
            }
        } else if name == "pre" {
            self.pre = self.pre.saturating_sub(1);
            self.line();
        } else if BLOCKS.contains(&name) {
            self.line();
        }
    }

    fn text(&mut self, text: &str) {
        let text = decode_entities(text);
        if self.pre > 0 {
            self.out.push_str(&text);
            return;
        }
        for c in text.chars() {
            if !c.is_whitespace() {
                self.out.push(c);
            } else if !self.out.is_empty() && !self.out.ends_with(char::is_whitespace) {
                self.out.push(' ');
            }
        }
    }

    fn line(&mut self) {
        self.out.truncate(self.out.trim_end_matches([' ', '\t']).len());
        if !self.out.is_empty() && !self.out.ends_with('\n') {
            self.out.push('\n');
        }
    }

    fn finish(mut self) -> String {
        self.out.truncate(self.out.trim_end().len());
        self.out
    }
}

fn is_worth_showing(link: &str) -> bool {
    let kind = link.split(':').next().unwrap_or_default();
    let scripted = kind.eq_ignore_ascii_case("javascript") || kind.eq_ignore_ascii_case("data");
    !link.is_empty() && !link.starts_with('#') && link.len() <= MAX_LINK_BYTES && !scripted
}

fn attribute(attributes: &str, wanted: &str) -> Option<String> {
    let mut rest = attributes.trim_start();
    while !rest.is_empty() {
        let end = rest.find(|c: char| c.is_whitespace() || matches!(c, '=' | '/')).unwrap_or(rest.len());
        let (name, after) = rest.split_at(end);
        let after = after.trim_start_matches(|c: char| c.is_whitespace() || c == '/');
        let Some(value) = after.strip_prefix('=') else {
            // Shorter than `rest`: a name or at least one separator was consumed.
            rest = after;
            continue;
        };
        let value = value.trim_start();
        let (value, after) = match value.chars().next() {
            Some(quote @ ('"' | '\'')) => value[1..].split_once(quote).unwrap_or((&value[1..], "")),
            _ => value.split_at(value.find(char::is_whitespace).unwrap_or(value.len())),
        };
        if name.eq_ignore_ascii_case(wanted) {
            return Some(decode_entities(value));
        }
        rest = after.trim_start();
    }
    None
}

fn decode_entities(text: &str) -> String {
    let mut decoded = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('&') {
        decoded.push_str(&rest[..at]);
        rest = &rest[at..];
        // The longest supported entity is `&#x10FFFF;`.
        let window = rest.len().min(12);
        let end = rest.as_bytes()[..window].iter().position(|&b| b == b';');
        if let Some((end, c)) = end.and_then(|end| Some((end, entity(rest.get(1..end)?)?))) {
            decoded.push(c);
            rest = &rest[end + 1..];
        } else {
            decoded.push('&');
            rest = &rest[1..];
        }
    }
    decoded.push_str(rest);
    decoded
}

fn entity(name: &str) -> Option<char> {
    if let Some(number) = name.strip_prefix('#') {
        let code = match number.strip_prefix(['x', 'X']) {
            Some(hex) => u32::from_str_radix(hex, 16),
            None => number.parse(),
        };
        return char::from_u32(code.ok()?).filter(|&c| c != '\0');
    }
    Some(match name {
        "amp" => '&',
        "lt" => '<',
        "gt" => '>',
        "quot" => '"',
        "apos" => '\'',
        "nbsp" => ' ',
        "ndash" => '–',
        "mdash" => '—',
        "hellip" => '…',
        "lsquo" => '‘',
        "rsquo" => '’',
        "ldquo" => '“',
        "rdquo" => '”',
        "copy" => '©',
        "reg" => '®',
        "euro" => '€',
        "pound" => '£',
        "deg" => '°',
        "middot" => '·',
        "times" => '×',
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_becomes_its_readable_text() {
        let html = "<!doctype html><html><HEAD><title>A &amp; B</title><style>p{}</style></HEAD><body>\
            <script>if (a < b) alert('</p>')</script><h1>Head</h1><p>One\n two&nbsp;<b>three</b></p><!-- <p>no</p> -->\
            <ul><li>x<li>y <a class=z href='/rel?a=1&amp;b=2'>link</a> <a href=\"javascript:x()\">js</a></ul>\
            <pre>  kept\n   as is</pre><p title=\"a > b\">5 < 6 &euro; &#8364; &#x20AC; &unknown; & end</body></html>";
        assert_eq!(
            to_text(html),
            "A & B\nHead\nOne two three\n- x\n- y link (/rel?a=1&b=2) js\n  kept\n   as is\n5 < 6 € € € &unknown; & end"
        );
    }

    #[test]
    fn malformed_pages_neither_fail_nor_hang() {
        for html in [
            "<",
            "<a",
            "<a href=",
            "<a href='",
            "</",
            "</script",
            "<!--",
            "&",
            "&#;",
            "&#xZ;",
            "<script>",
            "<p title=\"x>y",
            "é<é>é",
            "<head></head>",
            "<a x='>",
            "<a x=\">",
            "= '",
            "< ",
            "<a x=\"' >",
        ] {
            let _ = to_text(html);
            let long = html.repeat((1 << 20) / html.len());
            for page in [long.clone(), long + ">"] {
                let started = std::time::Instant::now();
                let _ = to_text(&page);
                // Linear time is about 50 ms here without optimisation; quadratic time would be hours.
                assert!(started.elapsed() < std::time::Duration::from_secs(10), "{html}: {:?}", started.elapsed());
            }
        }
        assert_eq!(to_text("a <b c"), "a <b c");
        assert_eq!(to_text("<p title=\"x>y"), "y");
    }

    #[test]
    fn a_table_keeps_its_cells_apart() {
        assert_eq!(to_text("<table><tr><td>a</td><td>b</td></tr><tr><td>c</td></tr></table>"), "\ta\tb\n\tc");
    }
}
