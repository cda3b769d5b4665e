"""README section "Behind FastAPI"."""

from contextlib import asynccontextmanager

from fastapi import FastAPI
from fastapi.testclient import TestClient
from langchain_kubernetes import KubernetesProviderConfig, KubernetesSandboxManager
from langgraph.checkpoint.memory import MemorySaver

manager = KubernetesSandboxManager(
    KubernetesProviderConfig(mode=MODE, template_name=TEMPLATE, image=IMAGE, namespace=NAMESPACE),
    ttl_idle_seconds=1800,
)

agent = None


@asynccontextmanager
async def lifespan(app: FastAPI):
    global agent
    agent = manager.create_agent(llm, checkpointer=MemorySaver())
    yield
    await manager.acleanup()


app = FastAPI(lifespan=lifespan)


@app.post("/chat/{thread_id}")
async def chat(thread_id: str, message: str):
    result = await agent.ainvoke(
        {"messages": [("user", message)]},
        config={"configurable": {"thread_id": thread_id}},
    )
    return {"reply": result["messages"][-1].content}


def said(client, thread, message):
    return client.post(f"/chat/{thread}", params={"message": message}).json()["reply"]


try:
    with TestClient(app) as client:
        said(client, THREAD + "-1", "run echo hello > greeting")
        assert said(client, THREAD + "-1", "run cat greeting").startswith("hello\n")
        assert "No such file" in said(client, THREAD + "-2", "run cat greeting")
    # acleanup() at the end deletes only expired sandboxes: a restart finds the conversation's sandbox.
    with TestClient(app) as client:
        assert said(client, THREAD + "-1", "run cat greeting").startswith("hello\n")
finally:
    manager.shutdown()
