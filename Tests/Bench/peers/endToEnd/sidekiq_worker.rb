# The same job in Sidekiq: one connection and one prepared statement a thread.
require 'sidekiq'
require 'pg'
require 'json'

redis = { url: ENV.fetch('REDIS_URL') }
Sidekiq.configure_server { |config| config.redis = redis }
Sidekiq.configure_client { |config| config.redis = redis }

UPSERT = <<~SQL
  INSERT INTO customers AS c (org, app_user_id, attributes, platform, os_version, device_model, locale, last_seen, hits)
  VALUES ($1, $2, $3::jsonb, $4, $5, $6, $7, now(), 1)
  ON CONFLICT (org, app_user_id) DO UPDATE SET attributes = c.attributes || excluded.attributes,
    platform = excluded.platform, os_version = excluded.os_version, device_model = excluded.device_model,
    locale = excluded.locale, last_seen = excluded.last_seen, hits = c.hits + excluded.hits
SQL

class Identify
  include Sidekiq::Worker

  def connection
    Thread.current[:pg] ||= PG.connect(ENV.fetch('PG_DSN')).tap { |made| made.prepare('upsert', UPSERT) }
  end

  def perform(job)
    connection.exec_prepared('upsert', [
      job['org'], job['appUserId'], JSON.generate(job['attributes']), job['platform'], job['osVersion'],
      job['deviceModel'], job['locale']
    ])
  end
end
