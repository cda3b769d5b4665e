//! The tools, made from the table of operations: one row each.
//!
//! The schema of a tool's arguments is put together from the schemas of the operations that it performs, so that a field is
//! described once, in `podbay-proto`, and from the few arguments that only tools have.

mod commands;
mod files;
mod processes;

pub(crate) use processes::page;

use std::sync::{Arc, LazyLock};

use podbay_proto::schema::{self, Described};
use rmcp::RoleServer;
use rmcp::model::{CallToolResult, JsonObject, Tool, ToolAnnotations};
use rmcp::service::RequestContext;
use serde_json::{Value, json};

use crate::failure::Failure;
use crate::reply;
use crate::session::Session;

/// One tool.
#[derive(Debug, Clone, Copy)]
pub struct Row {
    /// Its name.
    pub name: &'static str,
    /// Its name for people.
    pub title: &'static str,
    /// What it does, for the model.
    pub description: &'static str,
    /// The operations that it performs. The first one has the fields.
    pub operations: &'static [&'static str],
    /// The fields of the operation's request that are arguments of the tool.
    fields: &'static [&'static str],
    /// Arguments that only the tool has: name, JSON type, description.
    own: &'static [(&'static str, &'static str, &'static str)],
    /// Which of its own arguments are required.
    required: &'static [&'static str],
    /// What it may do to the sandbox.
    pub effect: ToolEffect,
}

/// What a tool may do to the sandbox: the protocol's annotations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ToolEffect {
    /// Nothing.
    Reads,
    /// It may change or delete what is there. Calling it twice may do more than calling it once.
    Changes,
    /// It may change what is there. Calling it twice does no more than calling it once.
    Replaces,
}

impl ToolEffect {
    fn annotations(self, title: &str) -> ToolAnnotations {
        let annotations = ToolAnnotations::with_title(title).read_only(self == Self::Reads).open_world(false);
        match self {
            Self::Reads => annotations,
            Self::Changes => annotations.destructive(true).idempotent(false),
            Self::Replaces => annotations.destructive(true).idempotent(true),
        }
    }
}

/// All tools.
pub const TOOLS: &[Row] = &[
    Row {
        name: "run",
        title: "Run a command",
        description: "Runs a shell command in the sandbox and returns its output, standard error included, and its exit code. \
                      Each call is a new shell in the working directory; files stay, variables and cd don't. \
                      Set background for a server or anything else that should keep running: the result then has an id for \
                      process_output and process_kill.",
        operations: &["exec.run", "exec.start"],
        fields: &[],
        own: &[
            ("command", "string", "The command, a line for sh -c."),
            (
                "cwd",
                "string",
                "Where to run it: the sandbox's working directory by default, to which a relative path is relative.",
            ),
            ("env", "object", "Environment variables on top of the sandbox's own."),
            ("timeout_seconds", "number", "Time limit in seconds; capped at the server's limit."),
            (
                "max_output_bytes",
                "integer",
                "Maximum number of output bytes to return (the beginning and the end); capped at the server's limit.",
            ),
            (
                "background",
                "boolean",
                "Starts the command and returns at once. It runs until it ends, is killed, or the sandbox ends.",
            ),
        ],
        required: &["command"],
        effect: ToolEffect::Changes,
    },
    Row {
        name: "read",
        title: "Read a file",
        description: "Reads a page of a text file, or an image. A relative path is relative to the working directory.",
        operations: &["read"],
        fields: &["path", "offset", "limit"],
        own: &[],
        required: &[],
        effect: ToolEffect::Reads,
    },
    Row {
        name: "write",
        title: "Write a file",
        description: "Creates or replaces a text file, with the directories above it. Use edit to change a part of a file.",
        operations: &["write"],
        fields: &["path", "create_only"],
        own: &[("content", "string", "The whole content of the file.")],
        required: &["content"],
        effect: ToolEffect::Replaces,
    },
    Row {
        name: "edit",
        title: "Edit a file",
        description: "Replaces a text in a file. The old text must occur exactly once, unless replace_all is set.",
        operations: &["edit"],
        fields: &["path", "replace_all"],
        own: &[
            ("old_string", "string", "The text to replace, exactly as it stands in the file."),
            ("new_string", "string", "The text to put in its place."),
        ],
        required: &["old_string", "new_string"],
        effect: ToolEffect::Changes,
    },
    Row {
        name: "ls",
        title: "List a directory",
        description: "Lists the direct children of a directory, including hidden ones: directories end with a slash, files have \
                      their size in bytes.",
        operations: &["ls"],
        fields: &["path"],
        own: &[],
        required: &[],
        effect: ToolEffect::Reads,
    },
    Row {
        name: "glob",
        title: "Find files by name",
        description: "Finds files by a glob pattern such as **/*.py. A pattern without a slash matches names at any depth.",
        operations: &["glob"],
        fields: &["pattern", "path", "directories", "dots"],
        own: &[],
        required: &[],
        effect: ToolEffect::Reads,
    },
    Row {
        name: "grep",
        title: "Find text in files",
        description: "Finds lines that contain a literal text (not a regular expression), as path:line:text. Binary files and \
                      .git are skipped.",
        operations: &["grep"],
        fields: &["pattern", "path", "glob", "max_count"],
        own: &[],
        required: &[],
        effect: ToolEffect::Reads,
    },
    Row {
        name: "upload",
        title: "Upload a file",
        description: "Creates or replaces a file of any bytes, given in base64, with the directories above it. For text, use write.",
        operations: &["write"],
        fields: &["path", "create_only"],
        own: &[
            ("content_base64", "string", "The whole content of the file, in base64."),
            ("executable", "boolean", "Makes the file executable."),
        ],
        required: &["content_base64"],
        effect: ToolEffect::Replaces,
    },
    Row {
        name: "process_list",
        title: "List processes",
        description: "Lists the commands in the sandbox that have live processes, with their ids.",
        operations: &["exec.list"],
        fields: &[],
        own: &[("all", "boolean", "Also lists commands that have ended.")],
        required: &[],
        effect: ToolEffect::Reads,
    },
    Row {
        name: "process_output",
        title: "Read a process's output",
        description: "Returns the output of a command from an offset in bytes on, and whether the command still runs.",
        operations: &["exec.attach", "exec.status"],
        fields: &["id", "offset"],
        own: &[
            ("max_output_bytes", "integer", "Maximum number of output bytes to return; capped at the server's limit."),
            (
                "wait_seconds",
                "number",
                "Waits up to this many seconds (at most 60, default 0) for output or for the command to end.",
            ),
        ],
        required: &[],
        effect: ToolEffect::Reads,
    },
    Row {
        name: "process_kill",
        title: "End a process",
        description: "Sends a signal to everything that a command started, KILL unless another is given.",
        operations: &["exec.signal"],
        fields: &["id", "signal"],
        own: &[],
        required: &[],
        effect: ToolEffect::Replaces,
    },
];

/// Fields that a tool doesn't require although the operation does.
const OPTIONAL: &[(&str, &str)] = &[("process_kill", "signal")];

/// The tools as clients see them.
pub(crate) fn all() -> &'static [Tool] {
    static ALL: LazyLock<Vec<Tool>> = LazyLock::new(|| {
        let operations = schema::operations();
        TOOLS.iter().map(|row| row.tool(&operations)).collect()
    });
    &ALL
}

impl Row {
    fn tool(&self, operations: &[Described]) -> Tool {
        let schema = Arc::new(self.schema(operations));
        Tool::new(self.name, self.description, schema)
            .with_title(self.title)
            .with_annotations(self.effect.annotations(self.title))
    }

    /// The JSON schema of the arguments. It has no references: not every client resolves them.
    fn schema(&self, operations: &[Described]) -> JsonObject {
        let mut properties = JsonObject::new();
        let mut required: Vec<&str> = Vec::new();
        let first = self.operations.first().copied().unwrap_or_default();
        let request = operations.iter().find(|operation| operation.name == first).map(|described| &described.request);
        for field in self.fields {
            let Some(schema) = request.and_then(|request| request.get("properties")?.get(field)) else { continue };
            properties.insert((*field).to_owned(), plain(schema));
            let needed = request.and_then(|request| request.get("required")?.as_array());
            let needed = needed.is_some_and(|names| names.iter().any(|name| name == field));
            if needed && !OPTIONAL.contains(&(self.name, *field)) {
                required.push(field);
            }
        }
        for (name, kind, description) in self.own {
            let mut schema = json!({ "type": kind, "description": description });
            if *kind == "object" {
                schema["additionalProperties"] = json!({ "type": "string" });
            }
            properties.insert((*name).to_owned(), schema);
        }
        required.extend(self.required);
        let schema = json!({
            "type": "object", "properties": properties, "required": required, "additionalProperties": false,
        });
        match schema {
            Value::Object(schema) => schema,
            _ => JsonObject::new(),
        }
    }
}

/// The schema of a field as models understand it: its type, description, default. Paths and ids are strings.
fn plain(schema: &Value) -> Value {
    let named = schema.get("type").and_then(|kind| match kind {
        Value::String(kind) => Some(kind.as_str()),
        // `["string", "null"]`
        Value::Array(kinds) => kinds.iter().filter_map(Value::as_str).find(|kind| *kind != "null"),
        _ => None,
    });
    let mut plain = json!({ "type": named.unwrap_or("string") });
    for key in ["description", "default", "minimum"] {
        if let Some(value) = schema.get(key).filter(|value| !value.is_null()) {
            plain[key] = value.clone();
        }
    }
    plain
}

/// Calls a tool. `None` if no tool has that name.
pub(crate) async fn call(
    session: &Session,
    name: &str,
    arguments: Option<JsonObject>,
    context: &RequestContext<RoleServer>,
) -> Option<CallToolResult> {
    let row = TOOLS.iter().find(|row| row.name == name)?;
    let Some(_running) = session.enter() else {
        let failure = Failure::Arguments("too many calls run at once: wait for one of them to end".to_owned());
        return Some(reply::failed(&failure, ""));
    };
    let done = match row.name {
        "run" => commands::run(session, arguments, context).await,
        "process_list" => processes::list(session, arguments).await,
        "process_output" => processes::output(session, arguments, context).await,
        "process_kill" => processes::kill(session, arguments).await,
        name => tokio::select! {
            done = files::call(session, name, arguments) => done,
            () = context.ct.cancelled() => Err(Failure::Cancelled),
        },
    };
    Some(match done {
        Ok(reply) => reply.result(),
        Err(failure) => {
            let lost = match &failure {
                Failure::Podbay(error) => session.lost_sandbox(error).await,
                _ => false,
            };
            let note = match lost {
                true => {
                    "\nThe sandbox has ended, and its files and processes are gone. The next call starts a new, empty one."
                }
                false => "",
            };
            reply::failed(&failure, note)
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use podbay_proto::OPERATIONS;
    use podbay_proto::operation::Group;

    /// Operations that no tool offers, and what models use in their place. For an operation on files that is `run`, unless one
    /// of these rows says better.
    const LEFT_OUT: &[(&str, &str)] = &[
        ("hello", "the server's own"),
        ("protections", "for people: podbay describe"),
        ("exec.input", "run with a here-document"),
        ("stat", "ls"),
        ("tree", "glob"),
        ("mkdir", "write makes directories"),
        ("download", "resources"),
    ];

    #[test]
    fn every_operation_has_a_tool_or_a_reason() {
        let offered = |name: &str| TOOLS.iter().any(|row| row.operations.contains(&name));
        let left_out = |name: &str| LEFT_OUT.iter().any(|(left_out, _)| *left_out == name);
        for operation in OPERATIONS.iter().filter(|operation| operation.for_users) {
            let replaced = left_out(operation.name) || !offered(operation.name) && operation.group == Group::Files;
            assert!(offered(operation.name) != replaced, "{}", operation.name);
        }
        let known = |name: &&str| OPERATIONS.iter().any(|operation| operation.name == *name);
        assert!(TOOLS.iter().flat_map(|row| row.operations).all(known), "a tool performs an unknown operation");
    }

    #[test]
    fn annotations_say_what_the_operations_do() {
        for row in TOOLS.iter().filter(|row| row.name != "process_output") {
            let mutates = |name: &&str| OPERATIONS.iter().any(|facts| facts.name == *name && facts.mutates);
            assert_eq!(row.effect != ToolEffect::Reads, row.operations.iter().any(mutates), "{}", row.name);
        }
        // Attaching to a command starts it where it is given one, and here it never is.
        let output = all().iter().find(|tool| tool.name == "process_output").and_then(|tool| tool.annotations.clone());
        assert_eq!(output.and_then(|annotations| annotations.read_only_hint), Some(true));
    }

    #[test]
    fn every_argument_has_a_type_and_a_description() {
        for (row, tool) in TOOLS.iter().zip(all()) {
            let properties = tool.input_schema["properties"].as_object().unwrap();
            assert_eq!(properties.len(), row.fields.len() + row.own.len(), "{}: a field is unknown", row.name);
            for (name, schema) in properties {
                assert!(schema["type"].is_string(), "{}: {name}: {schema}", row.name);
                assert!(schema["description"].is_string(), "{}: {name}", row.name);
            }
            let text = serde_json::to_string(&tool).unwrap();
            assert!(!text.contains("$ref"), "{text}");
        }
    }
}
