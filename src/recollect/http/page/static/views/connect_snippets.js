/** What to paste for each client. */

/** @typedef {{base: string, key: string, user: string}} Place */

/** A text as it is written in Python and JavaScript. @param {string} text */
const quoted = (text) => JSON.stringify(text);
/** A text within single quotes of a shell. @param {string} text */
const shellQuoted = (text) => text.replaceAll("'", `'\\''`);

/** What the clients are for, in the order of the page. @type {Record<string, string>} */
export const GROUPS = {
  chats: "Chats: change the base URL",
  prompts: "Your own prompts",
  frameworks: "Agent frameworks",
  agents: "Coding agents and tools",
};

/** @type {{name: string, group: string, title: string, intro: string, install?: string, code: (place: Place) => string}[]} */
export const SNIPPETS = [
  {
    name: "openai-python",
    group: "chats",
    title: "OpenAI for Python",
    intro: "Only the base URL changes. Each user has a memory of their own.",
    install: "pip install openai",
    code: ({ base, key, user }) => `from openai import OpenAI

client = OpenAI(base_url=${quoted(`${base}/v1`)}, api_key=${quoted(key)})
answer = client.chat.completions.create(
    model="gpt-5-mini",
    user=${quoted(user)},
    messages=[{"role": "user", "content": "My budget for the Hawaii trip is $10,000"}],
)
print(answer.choices[0].message.content)`,
  },
  {
    name: "openai-js",
    group: "chats",
    title: "OpenAI for JavaScript",
    intro: "Only the base URL changes.",
    install: "npm install openai",
    code: ({ base, key, user }) => `import OpenAI from "openai";

const client = new OpenAI({ baseURL: ${quoted(`${base}/v1`)}, apiKey: ${quoted(key)} });
const answer = await client.chat.completions.create({
  model: "gpt-5-mini",
  user: ${quoted(user)},
  messages: [{ role: "user", content: "My budget for the Hawaii trip is $10,000" }],
});
console.log(answer.choices[0].message.content);`,
  },
  {
    name: "ai-sdk",
    group: "chats",
    title: "Vercel AI SDK",
    intro: "A provider for the memory of one user. A server with many users passes the header to each call instead.",
    install: "npm install ai @ai-sdk/openai-compatible",
    code: ({ base, key, user }) => `import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { generateText } from "ai";

const recollect = createOpenAICompatible({
  name: "recollect",
  baseURL: ${quoted(`${base}/v1`)},
  apiKey: ${quoted(key)},
  headers: { "X-Memory-User": ${quoted(user)} },
});
const answer = await generateText({ model: recollect("gpt-5-mini"), prompt: "My budget for the Hawaii trip is $10,000" });
console.log(answer.text);`,
  },
  {
    name: "litellm",
    group: "chats",
    title: "LiteLLM",
    intro: "The prefix openai/ names the protocol; the rest is the model that this server forwards to.",
    install: "pip install litellm",
    code: ({ base, key, user }) => `import litellm

answer = litellm.completion(
    "openai/gpt-5-mini",
    [{"role": "user", "content": "My budget for the Hawaii trip is $10,000"}],
    api_base=${quoted(`${base}/v1`)},
    api_key=${quoted(key)},
    user=${quoted(user)},
)
print(answer.choices[0].message.content)`,
  },
  {
    name: "langchain",
    group: "chats",
    title: "LangChain",
    intro: "Each chat model has the memory of one user.",
    install: "pip install langchain-openai",
    code: ({ base, key, user }) => `from langchain_openai import ChatOpenAI

chat = ChatOpenAI(
    model="gpt-5-mini",
    base_url=${quoted(`${base}/v1`)},
    api_key=${quoted(key)},
    default_headers={"X-Memory-User": ${quoted(user)}},
)
print(chat.invoke("My budget for the Hawaii trip is $10,000").content)`,
  },
  {
    name: "curl",
    group: "chats",
    title: "curl",
    intro: "A chat with memory.",
    code: ({ base, key, user }) => `curl ${base}/v1/chat/completions -H 'Content-Type: application/json' -H 'Authorization: Bearer ${key}' -d '{
  "model": "gpt-5-mini", "user": ${shellQuoted(quoted(user))},
  "messages": [{"role": "user", "content": "How much can I spend in Hawaii?"}]
}'`,
  },
  {
    name: "apps",
    group: "chats",
    title: "Open WebUI and other apps",
    intro: "Any app that lets you set an OpenAI address: Open WebUI, LibreChat, Jan, editors and agents.",
    code: ({ base, key }) => `OPENAI_BASE_URL=${base}/v1
OPENAI_API_KEY=${key}`,
  },
  {
    name: "rest",
    group: "prompts",
    title: "REST",
    intro: "Remember messages and recall what is relevant, for your own prompts.",
    code: ({ base, key, user }) => `curl -X POST '${base}/recollect/v1/remember?user_id=${shellQuoted(encodeURIComponent(user))}' -H 'Authorization: Bearer ${key}' \\
  -H 'Content-Type: application/json' -d '{"messages": [{"role": "user", "content": "I moved to Bergen last week"}]}'

curl -X POST '${base}/recollect/v1/recall?user_id=${shellQuoted(encodeURIComponent(user))}' -H 'Authorization: Bearer ${key}' \\
  -H 'Content-Type: application/json' -d '{"messages": "Where do I live?"}'`,
  },
  {
    name: "python",
    group: "prompts",
    title: "Python library",
    intro: "The same memory in your process, without a server: it opens the same file.",
    install: "pip install recollect",
    code: ({ user }) => `from recollect import Memory

memory = Memory()
memory.remember("I moved to Bergen last week", user_id=${quoted(user)})
print(memory.recall("Where do I live?", user_id=${quoted(user)}).context.text)`,
  },
  {
    name: "mem0",
    group: "prompts",
    title: "mem0's client",
    intro: "Programs written for mem0 keep their calls and change the host.",
    install: "pip install mem0ai",
    code: ({ base, key, user }) => `from mem0 import MemoryClient

client = MemoryClient(api_key=${quoted(key)}, host=${quoted(base)})
client.add([{"role": "user", "content": "I moved to Bergen last week"}], user_id=${quoted(user)})
print(client.search("Where do I live?", filters={"user_id": ${quoted(user)}}))`,
  },
  {
    name: "langgraph",
    group: "frameworks",
    title: "LangGraph",
    intro: "A store for graphs.",
    install: "pip install 'recollect[langgraph]'",
    code: ({ user }) => `from recollect import Memory
from recollect.integrations.langgraph import RecollectStore

store = RecollectStore(Memory())  # graph.compile(store=store)
store.put((${quoted(user)}, "memories"), "food", {"text": "likes pizza"})`,
  },
  {
    name: "pydantic-ai",
    group: "frameworks",
    title: "Pydantic AI",
    intro: "Recalls before a run and remembers after it.",
    install: "pip install 'recollect[pydantic-ai]'",
    code: ({ user }) => `from pydantic_ai import Agent

from recollect import Memory
from recollect.integrations.pydantic_ai import Remembering

agent = Agent("openai:gpt-5-mini", capabilities=[Remembering(Memory(), user_id=${quoted(user)})])
print(agent.run_sync("How much can I spend in Hawaii?").output)`,
  },
  {
    name: "openai-agents",
    group: "frameworks",
    title: "OpenAI Agents SDK",
    intro: "A session that remembers across sessions.",
    install: "pip install 'recollect[openai-agents]'",
    code: ({ user }) => `from agents import Agent, RunConfig, Runner

from recollect import Memory
from recollect.integrations.openai_agents import RecollectSession, recalling

memory = Memory()
session = RecollectSession("monday", memory, user_id=${quoted(user)})
config = RunConfig(call_model_input_filter=recalling(memory, user_id=${quoted(user)}))
print(Runner.run_sync(Agent("assistant"), "Where do I live?", session=session, run_config=config).final_output)`,
  },
  {
    name: "coding-agents",
    group: "agents",
    title: "Coding agents",
    intro: "Tools, and hooks that recall and keep by themselves, for each repository. Also codex, cursor, gemini, vscode, claude-desktop and antigravity; --dry-run shows what would change.",
    install: "pip install 'recollect[mcp]'",
    code: ({ base, key }) => `export RECOLLECT_API_KEY=${key}
recollect install claude-code --url ${base}`,
  },
  {
    name: "mcp",
    group: "agents",
    title: "MCP",
    intro: "For any client of the Model Context Protocol, by HTTP. Append /PROJECT to the address for the memories of one project.",
    code: ({ base, key }) => JSON.stringify({ mcpServers: { recollect: { type: "http", url: `${base}/mcp`, headers: { Authorization: `Bearer ${key}` } } } }, null, 2),
  },
  {
    name: "crewai",
    group: "frameworks",
    title: "CrewAI",
    intro: "The memory of a crew or an agent.",
    install: "pip install 'recollect[crewai]'",
    code: ({ user }) => `from crewai import Agent, Crew, Task

from recollect import Memory
from recollect.integrations.crewai import CrewMemory

agent = Agent(role="Travel agent", goal="Answer the user", backstory="You plan trips", llm="openai/gpt-5-mini")
task = Task(description="{message}", expected_output="An answer", agent=agent)
crew = Crew(agents=[agent], tasks=[task], memory=CrewMemory(Memory(), user_id=${quoted(user)}))
print(crew.kickoff(inputs={"message": "What is my budget for the Hawaii trip?"}))`,
  },
  {
    name: "llama-index",
    group: "frameworks",
    title: "LlamaIndex",
    intro: "The memory of an agent or a chat engine.",
    install: "pip install 'recollect[llama-index]' llama-index-llms-openai",
    code: ({ user }) => `from llama_index.core.chat_engine import SimpleChatEngine
from llama_index.llms.openai import OpenAI

from recollect import Memory
from recollect.integrations.llama_index import RecollectMemory

chat_memory = RecollectMemory.from_defaults(memory=Memory(), user_id=${quoted(user)}, session_id="monday")
engine = SimpleChatEngine.from_defaults(llm=OpenAI("gpt-5-mini"), memory=chat_memory)
print(engine.chat("What is my budget for the Hawaii trip?"))`,
  },
  {
    name: "google-adk",
    group: "frameworks",
    title: "Google ADK",
    intro: "A memory service of a runner; an application is a project.",
    install: "pip install 'recollect[google-adk]' litellm",
    code: ({ user }) => `import asyncio

from google.adk.agents import LlmAgent
from google.adk.models.lite_llm import LiteLlm
from google.adk.runners import Runner
from google.adk.sessions import InMemorySessionService
from google.adk.tools import preload_memory

from recollect import Memory
from recollect.integrations.google_adk import RecollectMemoryService, remember_turn

model, tools = LiteLlm("openai/gpt-5-mini"), [preload_memory]
agent = LlmAgent(name="travel_agent", model=model, tools=tools, after_agent_callback=remember_turn)
services = {"session_service": InMemorySessionService(), "memory_service": RecollectMemoryService(Memory())}
runner = Runner(app_name="travel", agent=agent, **services)
asyncio.run(runner.run_debug("My budget for the Hawaii trip is $10,000", user_id=${quoted(user)}, session_id="monday"))`,
  },
  {
    name: "anthropic",
    group: "frameworks",
    title: "Anthropic's memory tool",
    intro: "The files under /memories that Claude reads and writes.",
    install: "pip install 'recollect[anthropic]'",
    code: ({ user }) => `from anthropic import Anthropic

from recollect import Memory
from recollect.integrations.anthropic import memory_tool

runner = Anthropic().beta.messages.tool_runner(
    model="claude-sonnet-5-5",
    max_tokens=1000,
    tools=[memory_tool(Memory(), user_id=${quoted(user)})],
    messages=[{"role": "user", "content": "Remember: we fly to Oahu on 3 May"}],
)
print(runner.until_done().content)`,
  },
];
