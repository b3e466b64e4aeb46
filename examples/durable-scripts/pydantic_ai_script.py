"""Plans a delivery with two tools, over Pydantic AI.

    pip install -r requirements.txt
    longhaul run --key delivery-4 -- python pydantic_ai_script.py
"""

import json
import os

from pydantic_ai import Agent

agent = Agent(
    "openai:" + os.environ.get("MODEL", "gpt-5-mini"),
    instructions="Use the tools. Answer in one sentence.",
)


@agent.tool_plain
def stock(product: str) -> str:
    """Pieces of a product and the warehouse that has them."""
    return json.dumps({"product": product, "pieces": 12, "warehouse": "Hamburg"})


@agent.tool_plain
def delivery_days(warehouse: str, city: str) -> str:
    """Days of a delivery from a warehouse to a city."""
    return json.dumps({"from": warehouse, "to": city, "days": 3})


if __name__ == "__main__":
    print(agent.run_sync("When can ten desk lamps be in Lyon?").output)
