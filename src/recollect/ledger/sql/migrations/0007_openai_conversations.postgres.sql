-- PostgreSQL keeps samples of what stands in a column, which outlive the rows. Nobody searches by what is in these.
ALTER TABLE responses ALTER COLUMN body SET STATISTICS 0;

ALTER TABLE threads ALTER COLUMN body SET STATISTICS 0;

ALTER TABLE thread_items ALTER COLUMN body SET STATISTICS 0;
