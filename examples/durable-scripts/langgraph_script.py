"""Plans a delivery with two tools, over LangGraph.

    pip install -r requirements.txt
    longhaul run --key delivery-3 -- python langgraph_script.py
"""

import json
import os

from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition


@tool
def stock(product: str) -> str:
    """Pieces of a product and the warehouse that has them."""
    return json.dumps({"product": product, "pieces": 12, "warehouse": "Hamburg"})


@tool
def delivery_days(warehouse: str, city: str) -> str:
    """Days of a delivery from a warehouse to a city."""
    return json.dumps({"from": warehouse, "to": city, "days": 3})


def main() -> None:
    tools = [stock, delivery_days]
    model = ChatOpenAI(model=os.environ.get("MODEL", "gpt-5-mini")).bind_tools(tools)

    def ask(state: MessagesState) -> dict:
        return {"messages": [model.invoke(state["messages"])]}

    graph = StateGraph(MessagesState)
    graph.add_node("ask", ask)
    graph.add_node("tools", ToolNode(tools))
    graph.add_edge(START, "ask")
    graph.add_conditional_edges("ask", tools_condition)
    graph.add_edge("tools", "ask")
    asked = [
        {"role": "system", "content": "Use the tools. Answer in one sentence."},
        {"role": "user", "content": "When can ten desk lamps be in Lyon?"},
    ]
    print(graph.compile().invoke({"messages": asked})["messages"][-1].content)


if __name__ == "__main__":
    main()
