"""`recollect chat`: what is typed, what is asked of the server, what memory is asked."""
