-- What all users together spent on a day. It has no names and stays when a user goes, so that a limit for all of them
-- cannot be got round by erasing. Each user counts in one of a few slots: writers of one slot wait for each other.
DROP TABLE IF EXISTS usage_of_all;

CREATE TABLE usage_of_all (
    day BIGINT NOT NULL,
    slot BIGINT NOT NULL,
    calls BIGINT NOT NULL,
    tokens BIGINT NOT NULL,
    PRIMARY KEY (day, slot)
) {clustered};

INSERT INTO usage_of_all (day, slot, calls, tokens)
    SELECT day, 0, sum(calls), sum(input_tokens + output_tokens) FROM usage GROUP BY day;
