-- Full text. It is given terms, each led by its user's number, so that a search reads that user's lists only.
CREATE VIRTUAL TABLE terms USING fts5(words, content='', tokenize="ascii tokenchars '.'");

INSERT INTO terms(terms, rank) VALUES('secure-delete', 1);
