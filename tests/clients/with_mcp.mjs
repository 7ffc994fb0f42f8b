// The MCP SDK for TypeScript, in both eras of the protocol: tools, resources, notices and prompts.
import { Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";

const [url, mode] = process.argv.slice(2);
const client = new Client({ name: "test", version: "1" }, { versionNegotiation: { mode } });
await client.connect(new StreamableHTTPClientTransport(new URL(url)));

const call = (name, args = {}) => client.callTool({ name, arguments: args });
const tools = (await client.listTools()).tools.map((each) => each.name);
const stored = await call("remember", { text: "The bundler is Rolldown" });
const found = await call("recall", { query: "Which bundler?" });
const failed = await call("forget", { id: "unknown" });
const resource = await client.readResource({ uri: `memory://${stored.structuredContent.id}` });
const prompt = await client.getPrompt({ name: "brief", arguments: { topic: "the bundler" } });
const undone = await call("undo");
await client.close();

console.log(
  JSON.stringify({
    tools,
    found: found.structuredContent.memories.map((each) => each.text),
    failed: [failed.isError, failed.content[0].text],
    resource: resource.contents[0].text.includes("> The bundler is Rolldown"),
    prompt: prompt.messages[0].content.text.includes("The bundler is Rolldown"),
    undone: undone.structuredContent.ids.length,
  }),
);
