//! The files of the repository, read once.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use super::source::Source;

pub(crate) struct Tree {
    /// By path from the root, with `/`.
    pub(crate) sources: BTreeMap<String, Source>,
    /// Other text files that people write: Markdown, TOML, scripts.
    pub(crate) texts: BTreeMap<String, String>,
    pub(crate) crates: Vec<Package>,
    pub(crate) root: std::path::PathBuf,
}

/// One crate of the workspace.
pub(crate) struct Package {
    pub(crate) name: String,
    /// From the root, such as `crates/types`.
    pub(crate) folder: String,
    pub(crate) manifest: toml::Table,
}

impl Tree {
    pub(crate) fn read(root: &Path) -> Result<Self> {
        let mut tree =
            Self { sources: BTreeMap::new(), texts: BTreeMap::new(), crates: Vec::new(), root: root.to_owned() };
        for top in ["crates", "xtask", "docs", ".ci"] {
            tree.read_folder(top)?;
        }
        for entry in fs::read_dir(root)? {
            let entry = entry?;
            if entry.file_type()?.is_file() {
                tree.read_file(&entry.file_name().to_string_lossy())?;
            }
        }
        for (path, text) in &tree.texts {
            if let Some(folder) = path.strip_suffix("/Cargo.toml") {
                let manifest: toml::Table = text.parse().with_context(|| format!("cannot read {path}"))?;
                let name = folder.rsplit('/').next().unwrap_or(folder).to_owned();
                tree.crates.push(Package { name, folder: folder.to_owned(), manifest });
            }
        }
        Ok(tree)
    }

    fn read_folder(&mut self, folder: &str) -> Result<()> {
        let path = self.root.join(folder);
        if !path.exists() {
            return Ok(());
        }
        for entry in fs::read_dir(&path).with_context(|| format!("cannot list {folder}"))? {
            let entry = entry?;
            let name = format!("{folder}/{}", entry.file_name().to_string_lossy());
            let kind = entry.file_type()?;
            if kind.is_dir() && !name.ends_with("/target") {
                self.read_folder(&name)?;
            } else if kind.is_file() {
                self.read_file(&name)?;
            }
        }
        Ok(())
    }

    fn read_file(&mut self, name: &str) -> Result<()> {
        let rust = name.ends_with(".rs");
        let text_like = [".md", ".toml", ".proto", ".sh", ".py"].iter().any(|end| name.ends_with(end));
        let script = matches!(name, "dev" | ".ci/run" | "NOTICE");
        if rust || text_like || script {
            let text = fs::read_to_string(self.root.join(name)).with_context(|| format!("cannot read {name}"))?;
            if rust {
                self.sources.insert(name.to_owned(), Source::new(text));
            } else {
                self.texts.insert(name.to_owned(), text);
            }
        }
        Ok(())
    }

    /// The source files of one crate.
    pub(crate) fn sources_of<'a>(&'a self, package: &'a Package) -> impl Iterator<Item = (&'a str, &'a Source)> {
        let prefix = format!("{}/", package.folder);
        self.sources.iter().filter(move |(path, _)| path.starts_with(&prefix)).map(|(path, s)| (path.as_str(), s))
    }
}
