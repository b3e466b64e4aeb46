//! Converts HTML to text for a model: drops tags, puts blocks on lines of their own, and keeps links beside
//! their text.
//!
//! The tokenizer of the HTML standard reads malformed markup as a browser does. It cannot fail and takes linear time,
//! which html2text does not: a page of 1 MB of `<div>` took it more than a minute.

use std::borrow::Cow;
use std::convert::Infallible;

use html5gum::emitters::callback::{CallbackEmitter, CallbackEvent};
use html5gum::{Span, Tokenizer};

/// Elements whose content is dropped.
const SKIPPED: [&str; 6] = ["script", "style", "noscript", "template", "svg", "iframe"];
/// Elements that begin a line.
const BLOCKS: [&str; 28] = [
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
    "title",
    "tr",
];
/// Longest link shown, in bytes; longer ones are usually trackers.
const MAX_LINK_BYTES: usize = 300;

/// The readable text of a page.
pub(crate) fn to_text(html: &str) -> String {
    let mut page = Page::default();
    let mut emitter = CallbackEmitter::new(|event: CallbackEvent<'_>, _: Span<()>| -> Option<Infallible> {
        page.event(event);
        None
    });
    // Without it, the content of scripts would be read as markup.
    emitter.naively_switch_states(true);
    let Ok(()) = Tokenizer::new_with_emitter(html, emitter).finish();
    page.finish()
}

#[derive(Default)]
struct Page {
    out: String,
    /// The start tag that is being read; empty outside of one.
    tag: String,
    /// The attribute that is being read is a link's address.
    in_href: bool,
    link: Option<String>,
    pre: usize,
    /// The skipped element that is open, and how many of its kind are.
    skipped: Option<(String, usize)>,
}

impl Page {
    fn event(&mut self, event: CallbackEvent<'_>) {
        match event {
            CallbackEvent::OpenStartTag { name } => {
                self.tag = utf8(name).into_owned();
                self.in_href = false;
                self.open();
            }
            CallbackEvent::AttributeName { name } => self.in_href = self.tag == "a" && name == b"href",
            CallbackEvent::AttributeValue { value } if self.in_href && self.skipped.is_none() => {
                self.link = Some(utf8(value).into_owned()).filter(|link| is_worth_showing(link));
            }
            CallbackEvent::CloseStartTag { self_closing } => {
                let tag = std::mem::take(&mut self.tag);
                // HTML ignores the slash of its own elements.
                if self_closing && tag == "svg" {
                    self.close(&tag);
                }
            }
            CallbackEvent::EndTag { name } => self.close(&utf8(name)),
            CallbackEvent::String { value } if self.skipped.is_none() => self.text(&utf8(value)),
            CallbackEvent::AttributeValue { .. }
            | CallbackEvent::String { .. }
            | CallbackEvent::Comment { .. }
            | CallbackEvent::Doctype { .. }
            | CallbackEvent::Error(_) => {}
        }
    }

    fn open(&mut self) {
        let name = self.tag.as_str();
        if let Some((skipped, depth)) = &mut self.skipped {
            *depth += usize::from(skipped == name);
        } else if SKIPPED.contains(&name) {
            self.skipped = Some((name.to_owned(), 1));
        } else if name == "pre" {
            self.line();
            self.pre += 1;
        } else if name == "a" {
            self.link = None;
        } else if name == "td" || name == "th" {
            self.out.push('\t');
        } else if BLOCKS.contains(&name) {
            let is_item = name == "li";
            self.line();
            if is_item {
                self.out.push_str("- ");
            }
        }
    }

    fn close(&mut self, name: &str) {
        if let Some((skipped, depth)) = &mut self.skipped {
            *depth -= usize::from(skipped == name);
            if *depth == 0 {
                self.skipped = None;
            }
        } else if name == "a" {
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
        if self.pre > 0 {
            self.out.push_str(&text.replace('\u{a0}', " "));
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

/// The tokenizer changes nothing but ASCII in a text, which stays UTF-8.
fn utf8(bytes: &[u8]) -> Cow<'_, str> {
    String::from_utf8_lossy(bytes)
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
            let long = html.repeat((1 << 18) / html.len());
            for page in [long.clone(), long + ">"] {
                let started = std::time::Instant::now();
                let _ = to_text(&page);
                // Linear time is a fraction of a second here without optimisation; quadratic time would be minutes.
                assert!(started.elapsed() < std::time::Duration::from_secs(10), "{html}: {:?}", started.elapsed());
            }
        }
        assert_eq!(to_text("a < b c"), "a < b c");
        // A tag that the end of the document cuts is no text.
        assert_eq!(to_text("a <b c"), "a");
        assert_eq!(to_text("y<p title=\"x>y"), "y");
    }

    #[test]
    fn entities_are_decoded_as_browsers_do() {
        for (html, text) in [
            ("f&uuml;r caf&eacute; &rarr; &szlig;", "für café → ß"),
            ("&#252; &#xFC; &#XfC;", "ü ü ü"),
            // Windows-1252, a missing semicolon, and a code point that is none.
            ("&#150; &copy 2026 &#x110000;", "– © 2026 \u{fffd}"),
            ("&NotEqualTilde; &nosuch; AT&T &", "≂̸ &nosuch; AT&T &"),
            ("&amp;lt;", "&lt;"),
            ("<a href='/?a=1&amp;b=2&copy=3'>&laquo;x&raquo;</a>", "«x» (/?a=1&b=2&copy=3)"),
            ("<pre>a&nbsp;b\n c</pre>", "a b\n c"),
        ] {
            assert_eq!(to_text(html), text, "{html}");
        }
    }

    #[test]
    fn an_unclosed_head_keeps_the_body() {
        assert_eq!(to_text("<head><title>T</title><meta charset=utf-8><style>p{}</style><body><p>x"), "T\nx");
        assert_eq!(to_text("<title>1 < 2 <b></title>x"), "1 < 2 <b>\nx");
    }

    #[test]
    fn scripts_drawings_and_comments_are_left_out() {
        for html in [
            "a<script>if (1 < 2) '<p>no</p>'</script>b",
            "a<script><!-- <script> no </script> no --></script>b",
            "a<style>p > a {}</style>b",
            "a<noscript><p>no</p></noscript>b",
            "a<svg><title>no</title><svg>no</svg><a href=/no>no</a></svg>b",
            "a<svg/>b",
            "a<template><template>no</template>no</template>b",
            "a<iframe src=/no>no</iframe>b",
            "a<!-- <p>no</p> > -->b",
            "a<!doctype no><?no no?>b",
        ] {
            assert_eq!(to_text(html), "ab", "{html}");
        }
        assert_eq!(to_text("a<script>no"), "a");
        assert_eq!(to_text("a<!-- no"), "a");
    }

    #[test]
    fn a_table_keeps_its_cells_apart() {
        assert_eq!(to_text("<table><tr><td>a</td><td>b</td></tr><tr><td>c</td></tr></table>"), "\ta\tb\n\tc");
    }
}
