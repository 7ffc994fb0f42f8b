"""Memory for clients of the Model Context Protocol: tools, resources and prompts over HTTP and stdio."""
