-- wrk's script: a real identify in every request. 10,000 users, each with an address of its own, and attributes that no
-- two requests share. Only a counter is put in while measuring: the generator must not be what is measured.
-- METHOD and TARGET (environment) are for servers that take the body elsewhere.

local users = 10000
local method = os.getenv("METHOD") or "POST"
local target = os.getenv("TARGET") or "/api/sdk/v1/identify"
local models = { "iPhone15,3", "iPhone16,2", "iPhone17,1", "iPad14,5", "iPhone14,7" }
local locales = { "en_US", "de_DE", "fr_FR", "pt_BR", "ja_JP", "en_GB" }
local countries = { "US", "DE", "FR", "BR", "JP", "GB" }
local plans = { "free", "trial", "premium_monthly", "premium_yearly" }
local campaigns = { "spring_newsletter_variant_b", "search_brand_exact", "winback_2026_q4", "referral_program" }

-- Both sides of the counter, which always has ten digits.
local heads, tails = {}, {}
local nextNumber = 1000000000
local nextUser = 0

local function pick(list, number)
    return list[number % #list + 1]
end

local function build(user)
    local before = string.format(
        '{"bundleId":"com.example.app","appUserId":"$anon_%08x-4f9c-4a71-8d2e-%012x","platform":"ios",'
            .. '"osVersion":"26.%d.%d","deviceModel":"%s","locale":"%s","attributes":{"session":',
        user * 7919, user * 104729, user % 5, user % 3, pick(models, user), pick(locales, user))
    local after = string.format(
        ',"email":"user%d.longer.name@example.com","plan":"%s","since":"2026-%02d-%02d","country":"%s",'
            .. '"level":%d,"score":%.5f,"onboarded":%s,"utm_campaign":"%s"}}',
        user, pick(plans, user), user % 12 + 1, user % 28 + 1, pick(countries, user), user % 97, user / 7, user % 2 == 0 and "true" or "false", pick(campaigns, user))
    local length = #before + 10 + #after
    local head = string.format(
        "%s %s HTTP/1.1\r\nHost: ratchet.example.com\r\nUser-Agent: App/3.2 (iOS)\r\nContent-Type: application/json\r\n"
            .. "X-Forwarded-For: 10.%d.%d.%d\r\nContent-Length: %d\r\n\r\n",
        method, target, user % 200, math.floor(user / 200) % 250, user % 250 + 1, length)
    return head .. before, after, length
end

function init()
    local bytes = 0
    for user = 1, users do
        local length
        heads[user], tails[user], length = build(user)
        bytes = bytes + length
    end
    io.stderr:write(string.format("mean body: %.0f bytes\n", bytes / users))
    math.randomseed(tonumber(os.getenv("SEED") or "1"))
    -- No two runs send the same.
    nextNumber = nextNumber + math.random(8) * 1000000000 + math.random(999) * 1000000
end

function request()
    nextNumber = nextNumber + 1
    -- Steps over a prime: neighbours are not sent one after the other.
    nextUser = (nextUser + 7919) % users
    return heads[nextUser + 1] .. nextNumber .. tails[nextUser + 1]
end

function done(summary, latency)
    local errors = summary.errors
    print(string.format(
        '{"seconds":%f,"answers":%d,"refused":%d,"broken":%d,"p50us":%d,"p99us":%d}', summary.duration / 1e6,
        summary.requests, errors.status, errors.connect + errors.read + errors.write + errors.timeout,
        latency:percentile(50), latency:percentile(99)))
end
