-- Replace the recommendations in PostgreSQL in one transaction: readers see yesterday's until the last line.
--
--   recbole-hyper recommend saved/shop --k=20 --output=recs.csv
--   psql --no-psqlrc --set=ON_ERROR_STOP=1 --file=examples/load_postgres.sql shop < recs.csv
--
--   SELECT item_id FROM recommendations WHERE user_id = 'anna' ORDER BY position;
BEGIN;

CREATE TABLE IF NOT EXISTS recommendations (
    user_id text NOT NULL,
    position integer NOT NULL,
    item_id text NOT NULL,
    score real NOT NULL,
    popular boolean NOT NULL,
    PRIMARY KEY (user_id, position)
);

CREATE TEMPORARY TABLE incoming (LIKE recommendations) ON COMMIT DROP;

\copy incoming FROM pstdin WITH (FORMAT csv, HEADER true)

DO $$ BEGIN
    IF NOT EXISTS (SELECT FROM incoming) THEN
        RAISE EXCEPTION 'the file has no recommendations; the old ones are kept';
    END IF;
END $$;

DELETE FROM recommendations;
INSERT INTO recommendations SELECT * FROM incoming;

COMMIT;
