//! The protocol's requests, answered for one session.

use std::borrow::Cow;
use std::sync::Arc;

use rmcp::model::{
    CallToolRequestParams, CallToolResponse, Implementation, InitializeRequestParams, InitializeResult,
    ListResourceTemplatesResult, ListResourcesResult, ListToolsResult, PaginatedRequestParams, ProtocolVersion,
    ReadResourceRequestParams, ReadResourceResponse, ServerCapabilities, ServerConfig, Tool,
};
use rmcp::service::RequestContext;
use rmcp::{ErrorData, RoleServer, ServerHandler};

use crate::failure::Failure;
use crate::http::activity;
use crate::resources;
use crate::session::Session;
use crate::tools;

/// The versions of the protocol that have sessions over HTTP.
pub(crate) fn versions_with_sessions() -> &'static [ProtocolVersion] {
    ProtocolVersion::known_up_to(&ProtocolVersion::V_2025_11_25)
}

/// What answers the requests of one session.
#[derive(Debug, Clone)]
pub(crate) struct Server {
    session: Arc<Session>,
    /// Whether requests stand alone, so that the protocol's versions without sessions can be spoken.
    stateless: bool,
}

impl Server {
    /// The server of a session on a connection of its own.
    pub(crate) fn connected(session: Arc<Session>) -> Self {
        Self { session, stateless: true }
    }

    /// The server of a session over HTTP. From 2026-07-28 on the protocol has no sessions there, and so no sandbox of one's own:
    /// those versions are spoken only where all share one sandbox. Clients fall back to the version before.
    pub(crate) fn over_http(session: Arc<Session>) -> Self {
        let stateless = !session.owns_sandbox();
        Self { session, stateless }
    }

    /// The session, if it was opened. Access control refuses requests outside of sessions; what it might miss ends here.
    fn session(&self) -> Result<&Session, ErrorData> {
        match self.session.is_open() {
            true => Ok(&self.session),
            false => Err(ErrorData::invalid_request("a session is needed: send initialize first", None)),
        }
    }

    fn instructions(&self) -> String {
        let life = match self.session.owns_sandbox() {
            true => "It is created with the first tool call, belongs to this session alone, and is deleted with it.",
            false => "It stays when this session ends, and others may use it too.",
        };
        format!(
            "A sandbox: an isolated Linux machine for running commands and working on files, separate from the user's own. {life} \
             Relative paths are relative to its working directory, where projects belong. The tools never see files of \
             the user's machine: bring content in with write or upload, and return it with read."
        )
    }
}

impl ServerHandler for Server {
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder().enable_tools().enable_resources().build();
        ServerConfig::new(capabilities)
            .with_server_info(Implementation::new("podbay", env!("CARGO_PKG_VERSION")).with_title("Podbay"))
            .with_instructions(self.instructions())
    }

    fn supported_protocol_versions(&self) -> Cow<'static, [ProtocolVersion]> {
        match self.stateless {
            true => Cow::Borrowed(ProtocolVersion::KNOWN_VERSIONS),
            false => Cow::Borrowed(versions_with_sessions()),
        }
    }

    async fn initialize(
        &self,
        request: InitializeRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<InitializeResult, ErrorData> {
        if let Some(slot) = activity::slot(&context) {
            self.session.take(slot);
        }
        context.peer.set_peer_info(request.clone());
        self.negotiate_initialize(&request)
    }

    async fn list_tools(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult::with_all_items(tools::all().to_vec()))
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        tools::all().iter().find(|tool| tool.name == name).cloned()
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let _active = activity::of(&context);
        match tools::call(self.session()?, &request.name, request.arguments, &context).await {
            Some(result) => Ok(result.into()),
            None => {
                let name: String = request.name.chars().take(80).collect();
                let names: Vec<_> = tools::TOOLS.iter().map(|row| row.name).collect();
                let message = format!("there is no tool {name:?}; the tools are {}", names.join(", "));
                Err(ErrorData::invalid_params(message, None))
            }
        }
    }

    async fn list_resources(
        &self,
        _request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        let _active = activity::of(&context);
        let session = self.session()?;
        let Some(_running) = session.enter() else { return Err(crowded()) };
        let listed = resources::list(session).await.map_err(|failure| refused(&failure))?;
        Ok(ListResourcesResult::with_all_items(listed))
    }

    async fn list_resource_templates(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        Ok(ListResourceTemplatesResult::with_all_items(resources::templates()))
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        let _active = activity::of(&context);
        let session = self.session()?;
        let Some(_running) = session.enter() else { return Err(crowded()) };
        match resources::read(session, &request.uri).await {
            Ok(Some(result)) => Ok(result.into()),
            Ok(None) => {
                let uri: String = request.uri.chars().take(200).collect();
                let message = format!(
                    "there is no resource {uri:?}: use podbay://file/ABSOLUTE/PATH or podbay://exec/ID/output, with \
                     ?offset=BYTES for what follows"
                );
                Err(ErrorData::resource_not_found(message, None))
            }
            Err(failure) => Err(refused(&failure)),
        }
    }
}

/// Too many calls of a session run.
fn crowded() -> ErrorData {
    ErrorData::invalid_request("too many calls run at once: wait for one of them to end", None)
}

/// A resource that can't be read.
fn refused(failure: &Failure) -> ErrorData {
    let message = failure.message();
    match failure.code() {
        "not_found" | "exec_not_found" => ErrorData::resource_not_found(message, None),
        "policy_denied" | "escapes_root" | "permission_denied" | "is_directory" | "invalid_path" => {
            ErrorData::invalid_params(message, None)
        }
        _ => ErrorData::internal_error(message, None),
    }
}
