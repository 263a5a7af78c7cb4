# sidekiq_enqueue.rb N: hands N jobs to Sidekiq, a thousand at a time.
require_relative 'sidekiq_worker'

def job(number)
  user = number * 7919 % 10_000
  {
    'jobId' => number, 'org' => format('org_%02d_4f9c2a71d8', user % 10),
    'appUserId' => format('$anon:%06dc0ffee8f14e45fceea167a5a36', user), 'platform' => user.odd? ? 'ios' : 'android',
    'osVersion' => '17.4.1', 'deviceModel' => 'iPhone15,3', 'locale' => 'en_US',
    'attributes' => {
      'email' => "user#{user}.longer.name@example.com", 'plan' => "premium_yearly_#{number % 7}",
      'utm_source' => 'spring_campaign_newsletter_2026_variant_b_second_wave_returning_users'
    }
  }
end

(0...Integer(ARGV[0])).each_slice(1000) do |numbers|
  Sidekiq::Client.push_bulk('class' => 'Identify', 'args' => numbers.map { |number| [job(number)] })
end
