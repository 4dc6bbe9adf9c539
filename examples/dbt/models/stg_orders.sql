{{ config(materialized='view', event_time='ordered_at') }}
select order_id, customer_id, country, cast(amount as decimal(10, 2)) as amount, ordered_at from {{ source('raw', 'orders') }}
