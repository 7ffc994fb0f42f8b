// OpenAI's own client for Node does all it does, through the proxy.
import OpenAI from "openai";
import { zodResponseFormat } from "openai/helpers/zod";
import { z } from "zod";

const [url, user, picture, budget, question] = process.argv.slice(2);
const sdk = new OpenAI({ baseURL: url, apiKey: "sk-test", maxRetries: 0 });
const Person = z.object({ name: z.string(), age: z.number() });
const parameters = { type: "object", properties: { city: { type: "string" } } };

async function ask(content, more = {}) {
  const messages = [{ role: "user", content }];
  const answer = await sdk.chat.completions.create({ model: "scripted", user, messages, ...more });
  return answer.choices[0].message.content;
}

async function streamed(content) {
  const messages = [{ role: "user", content }];
  const stream = await sdk.chat.completions.create({ model: "scripted", user, messages, stream: true });
  let said = "";
  for await (const chunk of stream) said += chunk.choices[0]?.delta?.content ?? "";
  return said;
}

async function tools() {
  const weather = { name: "weather", parameters, parse: JSON.parse, function: () => "sunny" };
  const runner = sdk.chat.completions.runTools({
    model: "scripted",
    user,
    messages: [{ role: "user", content: "How is the weather?" }],
    tools: [{ type: "function", function: weather }],
  });
  return runner.finalContent();
}

async function structured() {
  const answer = await sdk.chat.completions.parse({
    model: "scripted",
    user,
    messages: [{ role: "user", content: "Ann is 30" }],
    response_format: zodResponseFormat(Person, "person"),
  });
  return answer.choices[0].message.parsed;
}

async function error() {
  try {
    await ask("You go too fast");
  } catch (refused) {
    return refused instanceof OpenAI.RateLimitError ? [refused.status, refused.code] : [String(refused)];
  }
  return [];
}

const shown = [
  { type: "text", text: "What is in this picture?" },
  { type: "image_url", image_url: { url: picture } },
];
await ask(budget);
console.log(
  JSON.stringify({
    chat: await ask("Hello"),
    stream: await streamed("Count"),
    tools: await tools(),
    image: await ask(shown),
    structured: await structured(),
    error: await error(),
    recalled: await ask(question),
    recalled_streamed: await streamed(question),
  }),
);
