"""The official Python library, told what to do: one JSON object a line on stdin, one with what came of it on stdout.

What an application would see is written down as it is seen: pieces, usage, or the error's class and members.
"""

import json
import sys
import time

import openai
from pydantic import BaseModel


class Weather(BaseModel):
    city: str


TOOL = {
    "type": "function",
    "function": {
        "name": "weather",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}},
            "required": ["city"],
        },
    },
}


def client_of(job):
    options = {key: job[key] for key in ("timeout", "max_retries") if key in job}
    return openai.OpenAI(base_url=job["url"] + "/v1", api_key=job["key"], **options)


def body_of(job):
    body = {"model": job["model"], "messages": [{"role": "user", "content": job["prompt"]}]}
    return {**body, **job.get("body", {})}


def stream(job, seen):
    chunks = client_of(job).chat.completions.create(**body_of(job), stream=True)
    for chunk in chunks:
        if chunk.usage is not None:
            seen["usage"] = chunk.usage.model_dump()
        for choice in chunk.choices:
            if choice.delta.content:
                seen["pieces"].append(choice.delta.content)
            for call in choice.delta.tool_calls or []:
                seen["arguments"] += (call.function and call.function.arguments) or ""
            seen["finish"] = choice.finish_reason or seen["finish"]
        if len(seen["pieces"]) == job.get("leave_after"):
            chunks.close()
            return


def whole(job, seen):
    answer = client_of(job).chat.completions.create(**body_of(job))
    message = answer.choices[0].message
    seen["pieces"] = [message.content or ""]
    seen["arguments"] = "".join(call.function.arguments for call in message.tool_calls or [])
    seen["finish"] = answer.choices[0].finish_reason
    seen["usage"] = answer.usage and answer.usage.model_dump()


def parse(job, seen):
    answer = client_of(job).chat.completions.parse(**body_of(job), response_format=Weather)
    seen["parsed"] = answer.choices[0].message.parsed.model_dump()


def tools(job, seen):
    way = stream if job.get("streamed") else whole
    way({**job, "body": {"tools": [TOOL], "tool_choice": "required"}}, seen)


def embed(job, seen):
    answer = client_of(job).embeddings.create(model=job["model"], input=job["prompt"])
    seen["embedding"] = answer.data[0].embedding


def models(job, seen):
    client = client_of(job)
    seen["models"] = [model.id for model in client.models.list()]
    client.models.retrieve(job["model"])


WAYS = {each.__name__: each for each in (stream, whole, parse, tools, embed, models)}


def said(error):
    return {
        "kind": type(error).__name__,
        "status": getattr(error, "status_code", None),
        "code": getattr(error, "code", None),
        "request_id": getattr(error, "request_id", None),
        "message": str(error),
    }


for line in sys.stdin:
    job = json.loads(line)
    seen = {"pieces": [], "arguments": "", "finish": None, "usage": None, "error": None}
    began = time.monotonic()
    try:
        WAYS[job["way"]](job, seen)
    except Exception as error:  # Whatever it is, it is what an application would see.
        seen["error"] = said(error)
    seen["seconds"] = time.monotonic() - began
    print(json.dumps(seen), flush=True)
