#!/bin/sh
# Run SQL on Kubernetes without an operator:
#
#   API=https://api.example.com:6443 IMAGE=registry.example.com/lamella-spark:0.1.0 \
#       deploy/spark/kubernetes/submit.sh "SELECT count(*) FROM lake.db.t"
#
# In the namespace there are: rbac.yaml, and a Secret `lamella-spark` with the keys `token` (an API key with the role
# read) and `store_credentials` (a file as ~/.aws/credentials).
set -eu

: "${API:?the address of the API server}" "${IMAGE:?the image of stage spark}"
NAMESPACE=${NAMESPACE:-spark}
LAMELLA_URL=${LAMELLA_URL:-http://lamella.lamella.svc}
SECRETS=/etc/lamella/secrets

exec "${SUBMIT:-spark-submit}" \
    --master "k8s://$API" --deploy-mode cluster --name lamella-sql \
    --conf "spark.kubernetes.namespace=$NAMESPACE" \
    --conf "spark.kubernetes.container.image=$IMAGE" \
    --conf spark.kubernetes.authenticate.driver.serviceAccountName=lamella-spark \
    --conf spark.executor.instances="${EXECUTORS:-2}" \
    --conf spark.kubernetes.driver.secrets.lamella-spark="$SECRETS" \
    --conf spark.kubernetes.executor.secrets.lamella-spark="$SECRETS" \
    --conf "spark.kubernetes.driverEnv.LAMELLA_URL=$LAMELLA_URL" \
    --conf spark.kubernetes.driverEnv.LAMELLA_TOKEN_FILE="$SECRETS/token" \
    --conf spark.kubernetes.driverEnv.AWS_SHARED_CREDENTIALS_FILE="$SECRETS/store_credentials" \
    --conf spark.executorEnv.AWS_SHARED_CREDENTIALS_FILE="$SECRETS/store_credentials" \
    --conf spark.hadoop.fs.s3a.aws.credentials.provider=software.amazon.awssdk.auth.credentials.ProfileCredentialsProvider \
    --conf "spark.hadoop.fs.s3a.endpoint.region=${REGION:-us-east-1}" \
    ${ENDPOINT:+--conf "spark.hadoop.fs.s3a.endpoint=$ENDPOINT" --conf spark.hadoop.fs.s3a.path.style.access=true} \
    local:///opt/spark-jobs/sql.py "$@"
