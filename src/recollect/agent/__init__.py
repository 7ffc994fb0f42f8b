"""An agent that reasons and acts with tools, and remembers: facts, episodes, conversations, working memory."""
