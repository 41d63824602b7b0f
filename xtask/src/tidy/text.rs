//! Rules about single lines and files: width, module docs, safety comments, words that do not belong here.

use super::source::Source;
use super::tree::Tree;

/// rustfmt makes lines of 120; inside macros and comments it does not, and a word more is no harm.
const WIDTH: usize = 128;
/// Of a line with a string in it: messages are kept whole, so that a search finds them.
const WIDTH_WITH_STRING: usize = 160;

/// Parts of what must not be in a repository; in halves, so that this file does not find itself.
const FOREIGN: &[(&str, &str, &str)] = &[
    ("/home", "/", "a path of one developer's machine"),
    ("/Us", "ers/", "a path of one developer's machine"),
    ("/ro", "ot/", "a path of one developer's machine"),
    ("/wo", "rk/", "a path of one developer's machine"),
    ("crates", ".io", "a registry's host: say the crate's name"),
    ("py", "pi.org", "a registry's host: say the package's name"),
    ("npm", "js.com", "a registry's host: say the package's name"),
    ("proxy.go", "lang.org", "a registry's host: say the module's name"),
    ("env!(\"CARGO_MANIFEST", "_DIR", "where it was compiled, which may be another checkout: ask at run time"),
];

pub(crate) fn check(tree: &Tree) -> Vec<String> {
    let mut findings = Vec::new();
    for (path, source) in &tree.sources {
        // Tests have tables and macros whose lines are best left whole.
        if !path.contains("/tests") {
            findings.extend(too_wide(path, &source.text));
        }
        findings.extend(foreign_words(path, &source.text));
        findings.extend(unexplained_unsafe(path, source));
    }
    for (path, text) in &tree.texts {
        findings.extend(foreign_words(path, text));
    }
    for package in &tree.crates {
        for root in ["src/lib.rs", "src/main.rs"] {
            let path = format!("{}/{root}", package.folder);
            if tree.sources.get(&path).is_some_and(|source| !source.text.starts_with("//!")) {
                findings.push(format!("{path}: begins with no `//!` line that says what the crate is"));
            }
        }
    }
    findings
}

fn too_wide(path: &str, text: &str) -> Vec<String> {
    let limit = |line: &str| if line.contains('"') { WIDTH_WITH_STRING } else { WIDTH };
    let wide = text.lines().enumerate().filter(|(_, line)| line.chars().count() > limit(line));
    wide.map(|(number, line)| format!("{path}:{}: wider than {}", number + 1, limit(line))).collect()
}

fn foreign_words(path: &str, text: &str) -> Vec<String> {
    let mut findings = Vec::new();
    for (number, line) in text.lines().enumerate() {
        for (front, back, what) in FOREIGN {
            if line.contains(&format!("{front}{back}")) {
                findings.push(format!("{path}:{}: {what}", number + 1));
            }
        }
    }
    findings
}

/// Each unsafe block or impl has its reason in the comment above it (or on its line).
fn unexplained_unsafe(path: &str, source: &Source) -> Vec<String> {
    let text: Vec<&str> = source.text.lines().collect();
    let mut findings = Vec::new();
    for (number, line) in source.code.lines().enumerate() {
        if !(line.contains("unsafe {") || line.contains("unsafe impl")) {
            continue;
        }
        // The comment may stand above the statement whose part the block is: a few lines of code lie between at most.
        let above = text[number.saturating_sub(8)..=number].iter();
        if !above.copied().any(|line| line.contains("SAFETY:")) {
            findings.push(format!("{path}:{}: unsafe without a `// SAFETY:` comment", number + 1));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unsafe_needs_its_reason() {
        let bare = Source::new("fn f() {\n    unsafe { g() }\n}\n".to_owned());
        assert_eq!(unexplained_unsafe("f.rs", &bare).len(), 1);
        let explained = Source::new("fn f() {\n    // SAFETY: g has no demands.\n    unsafe { g() }\n}\n".to_owned());
        assert!(unexplained_unsafe("f.rs", &explained).is_empty());
    }

    #[test]
    fn width_counts_characters() {
        assert!(too_wide("f.rs", &"ä".repeat(WIDTH)).is_empty());
        assert_eq!(too_wide("f.rs", &"x".repeat(WIDTH + 1)).len(), 1);
    }
}
