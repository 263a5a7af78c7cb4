-- How far enrolments of devices come, by day and app, for the question why devices don't enrol.

CREATE TABLE enrolment_counts (
    -- Days since 1970, UTC.
    day bigint NOT NULL,
    -- Empty where no organization is known yet: a challenge names no app, and a bundle may be nobody's.
    organization text COLLATE "C" NOT NULL,
    bundle_id text COLLATE "C" NOT NULL,
    step text COLLATE "C" NOT NULL,
    reason text COLLATE "C" NOT NULL,
    times bigint NOT NULL,
    PRIMARY KEY (organization, bundle_id, day, step, reason)
);
CREATE INDEX enrolment_counts_day ON enrolment_counts (day);
