//! The house rules that no compiler checks. Each rule is a function from the tree to findings, one line each that names
//! the file and what to do.

mod arrows;
mod dead;
mod purity;
mod ratchet;
mod source;
mod text;
mod tree;

use std::path::Path;

use anyhow::Result;

use tree::Tree;

/// All findings about the repository at `root`; none when it is tidy.
///
/// # Errors
/// Where the tree cannot be read.
pub(crate) fn check(root: &Path) -> Result<Vec<String>> {
    let tree = Tree::read(root)?;
    let mut findings = Vec::new();
    findings.extend(arrows::check(&tree));
    findings.extend(dead::check(&tree));
    findings.extend(purity::check(&tree));
    findings.extend(text::check(&tree));
    findings.extend(ratchet::check(&tree)?);
    Ok(findings)
}

/// Lowers the allow-list of sizes to what is really there; never raises or adds an entry.
///
/// # Errors
/// Where the tree cannot be read or the list cannot be written.
pub(crate) fn shrink(root: &Path) -> Result<()> {
    ratchet::shrink(&Tree::read(root)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_repository_is_tidy() {
        let root = crate::root().expect("xtask lies in the root");
        let findings = check(&root).expect("the tree can be read");
        assert!(findings.is_empty(), "{}", findings.join("\n"));
    }
}
