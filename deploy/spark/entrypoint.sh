#!/bin/sh
# What Spark on Kubernetes starts in the image: `driver ...` or `executor`. Any other command is run as it is.
set -eu

case "${1:-}" in
driver)
    shift
    # The jars for S3 are named here, where they are: whoever submits would look for them on the machine that submits.
    exec "$SPARK_HOME/bin/spark-submit" \
        --conf "spark.jars=/opt/spark-s3/*.jar" \
        --conf "spark.driver.bindAddress=$SPARK_DRIVER_BIND_ADDRESS" \
        --conf "spark.executorEnv.SPARK_DRIVER_POD_IP=$SPARK_DRIVER_BIND_ADDRESS" \
        --deploy-mode client "$@"
    ;;
executor)
    # Options of Java come as SPARK_JAVA_OPT_0, SPARK_JAVA_OPT_1 and so on, each of them one word.
    set --
    number=0
    while option=$(printenv "SPARK_JAVA_OPT_$number"); do
        set -- "$@" "$option"
        number=$((number + 1))
    done
    exec "$JAVA_HOME/bin/java" "$@" \
        "-Xms$SPARK_EXECUTOR_MEMORY" "-Xmx$SPARK_EXECUTOR_MEMORY" \
        -cp "${SPARK_CLASSPATH:+$SPARK_CLASSPATH:}$SPARK_CONF_DIR:$SPARK_HOME/jars/*" \
        org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend \
        --driver-url "$SPARK_DRIVER_URL" \
        --executor-id "$SPARK_EXECUTOR_ID" \
        --cores "$SPARK_EXECUTOR_CORES" \
        --app-id "$SPARK_APPLICATION_ID" \
        --hostname "$SPARK_EXECUTOR_POD_IP" \
        --resourceProfileId "$SPARK_RESOURCE_PROFILE_ID" \
        --podName "$SPARK_EXECUTOR_POD_NAME"
    ;;
*)
    exec "$@"
    ;;
esac
