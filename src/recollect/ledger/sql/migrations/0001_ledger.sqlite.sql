-- Full text. It is given terms, each led by its user's number, so that a search reads that user's lists only.
CREATE VIRTUAL TABLE terms USING fts5(words, content='', tokenize="ascii tokenchars '.'");

-- Where each term stands: how searches read a list without anything else.
CREATE VIRTUAL TABLE terms_said USING fts5vocab(terms, instance);

INSERT INTO terms(terms, rank) VALUES('secure-delete', 1);
