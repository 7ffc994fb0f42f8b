"""What words mean to reading and writing alike: when something was, and what is mere manners."""
