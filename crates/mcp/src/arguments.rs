//! The arguments of the tools, as models send them.

use std::collections::BTreeMap;

use podbay::RawPath;
use podbay::files::{Edit, Glob, Grep, Ls, Read, Write};
use rmcp::model::JsonObject;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::failure::Failure;

/// Reads a tool's arguments. The message names what is wrong with them, for the model to correct.
pub(crate) fn parse<T: DeserializeOwned>(tool: &str, arguments: Option<JsonObject>) -> Result<T, Failure> {
    let arguments = arguments.unwrap_or_default();
    let misfit = misfit(tool, &arguments);
    serde_json::from_value(Value::Object(arguments)).map_err(|error| {
        let what = misfit.unwrap_or_else(|| error.to_string());
        Failure::Arguments(format!("the arguments of {tool} are invalid: {what}; correct them and call it again"))
    })
}

/// The first argument whose type isn't the schema's: the parser's own message doesn't name it.
fn misfit(tool: &str, arguments: &JsonObject) -> Option<String> {
    let tool = crate::tools::all().iter().find(|known| known.name == tool)?;
    let properties = tool.input_schema.get("properties")?;
    arguments.iter().find_map(|(name, value)| {
        let kind = properties.get(name)?.get("type")?.as_str()?;
        let fits = match kind {
            "string" => value.is_string(),
            "boolean" => value.is_boolean(),
            "integer" => value.is_i64() || value.is_u64(),
            "number" => value.is_number(),
            "object" => value.is_object(),
            _ => true,
        };
        (!fits && !value.is_null()).then(|| format!("the type of {name} must be {kind}"))
    })
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RunArguments {
    pub(crate) command: String,
    pub(crate) cwd: Option<RawPath>,
    #[serde(default)]
    pub(crate) env: BTreeMap<String, String>,
    pub(crate) timeout_seconds: Option<f64>,
    pub(crate) max_output_bytes: Option<u64>,
    #[serde(default)]
    pub(crate) background: bool,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ReadArguments {
    path: RawPath,
    offset: Option<i64>,
    limit: Option<i64>,
}

impl ReadArguments {
    pub(crate) fn request(self, max_output: u64) -> Read {
        let mut read = Read::new(self.path);
        read.offset = self.offset.unwrap_or(read.offset);
        read.limit = self.limit.unwrap_or(read.limit);
        // Not `max_binary_bytes`: half an image is none, and what models make of one doesn't depend on its bytes.
        read.max_bytes = read.max_bytes.min(max_output);
        read
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct WriteArguments {
    path: RawPath,
    pub(crate) content: String,
    #[serde(default)]
    create_only: bool,
}

impl WriteArguments {
    pub(crate) fn request(&self) -> Write {
        Write { create_only: self.create_only, ..Write::new(&self.path) }
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct UploadArguments {
    path: RawPath,
    pub(crate) content_base64: String,
    #[serde(default)]
    executable: bool,
    #[serde(default)]
    create_only: bool,
}

impl UploadArguments {
    pub(crate) fn request(&self) -> Write {
        let mode = self.executable.then_some(0o755);
        Write { create_only: self.create_only, mode, ..Write::new(&self.path) }
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct EditArguments {
    path: RawPath,
    pub(crate) old_string: String,
    pub(crate) new_string: String,
    #[serde(default)]
    replace_all: bool,
}

impl EditArguments {
    pub(crate) fn request(&self) -> Edit {
        Edit { replace_all: self.replace_all, ..Edit::in_file(&self.path) }
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct LsArguments {
    path: Option<RawPath>,
}

impl LsArguments {
    pub(crate) fn request(self, most: u64) -> Ls {
        Ls { path: self.path, ..Ls::default() }.limit(most)
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct GlobArguments {
    pattern: RawPath,
    path: Option<RawPath>,
    #[serde(default)]
    directories: bool,
    #[serde(default)]
    dots: bool,
}

impl GlobArguments {
    pub(crate) fn request(self, most: u64) -> Glob {
        Glob { path: self.path, directories: self.directories, dots: self.dots, ..Glob::new(self.pattern) }.limit(most)
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct GrepArguments {
    pattern: String,
    path: Option<RawPath>,
    glob: Option<RawPath>,
    max_count: Option<u64>,
}

impl GrepArguments {
    pub(crate) fn request(self, most: u64) -> Grep {
        let count = self.max_count.unwrap_or(most).min(most);
        // A line of a minified file would fill the result alone.
        let grep = Grep { path: self.path, glob: self.glob, max_line_bytes: 2_000, ..Grep::new(self.pattern) };
        grep.max_count(count)
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ProcessListArguments {
    #[serde(default)]
    pub(crate) all: bool,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ProcessOutputArguments {
    pub(crate) id: String,
    #[serde(default)]
    pub(crate) offset: u64,
    pub(crate) max_output_bytes: Option<u64>,
    pub(crate) wait_seconds: Option<f64>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ProcessKillArguments {
    pub(crate) id: String,
    pub(crate) signal: Option<i32>,
}
