-- An operator's token has no organization: it reaches every one, and Weir itself.
ALTER TABLE weir.tokens ALTER COLUMN organization DROP NOT NULL;
ALTER TABLE weir.tokens DROP CONSTRAINT tokens_role_check;
ALTER TABLE weir.tokens ADD CONSTRAINT tokens_role_check CHECK (role IN ('read', 'write', 'admin', 'operator'));
ALTER TABLE weir.tokens ADD CONSTRAINT tokens_organization_check CHECK ((role = 'operator') = (organization IS NULL));
ALTER TABLE weir.audit_log ALTER COLUMN organization DROP NOT NULL;
