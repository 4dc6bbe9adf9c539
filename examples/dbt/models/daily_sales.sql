{# A day at a time: each run replaces the days that may have changed, each in one commit. #}
{{ config(
    materialized='incremental',
    incremental_strategy='microbatch',
    event_time='day',
    begin=var('first_day'),
    batch_size='day',
    lookback=1
) }}
select date_trunc('day', ordered_at) as day, country, count(*) as orders, sum(amount) as amount
from {{ ref('stg_orders') }}
group by all
