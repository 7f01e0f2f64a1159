-- What the apps of an environment declare in their code: queues and schedules, which each app owns by name.
CREATE TABLE weir.declared_apps (
    organization   text   NOT NULL,
    project        text   NOT NULL,
    environment    text   NOT NULL,
    app            text   NOT NULL CHECK (app <> ''),
    spec           json   NOT NULL,
    actor          text   NOT NULL,
    declared_at_ms bigint NOT NULL,
    PRIMARY KEY (organization, project, environment, app),
    FOREIGN KEY (organization, project, environment) REFERENCES weir.environments ON DELETE CASCADE
);

-- The app that owns a schedule, if one does.
ALTER TABLE weir.schedules ADD COLUMN app text;
ALTER TABLE weir.schedules DROP CONSTRAINT schedules_origin_check;
ALTER TABLE weir.schedules ADD CONSTRAINT schedules_origin_check
    CHECK (origin IN ('api', 'spec', 'app') AND (origin = 'app') = (app IS NOT NULL));
