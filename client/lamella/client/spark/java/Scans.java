package lamella;

import java.lang.reflect.Constructor;
import java.lang.reflect.InvocationTargetException;
import java.util.HashMap;
import java.util.Map;
import java.util.OptionalLong;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.Path;
import org.apache.spark.sql.connector.expressions.Expressions;
import org.apache.spark.sql.connector.expressions.NamedReference;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.Statistics;
import org.apache.spark.sql.execution.datasources.FileStatusCache;
import org.apache.spark.sql.execution.datasources.InMemoryFileIndex;
import org.apache.spark.sql.execution.datasources.PartitionSpec;
import org.apache.spark.sql.execution.datasources.SharedInMemoryCache;
import org.apache.spark.sql.execution.datasources.v2.parquet.ParquetPartitionReaderFactory;
import org.apache.spark.sql.execution.datasources.v2.parquet.ParquetScan;
import org.apache.spark.sql.execution.datasources.v2.parquet.ParquetScanBuilder;
import org.apache.spark.sql.internal.SQLConf;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import scala.Option;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;

/** Spark's own Parquet scans over given files: what takes dozens of calls from Python takes one here. */
public final class Scans {
    /**
     * Returns an InMemoryFileIndex of the files of a serialised ArrayWritable of FileStatus, or the number of the files
     * that it has if that is not the number of the files that were given. Nothing is listed: the index finds them in a
     * cache, below a folder that it never reads.
     */
    public Object index(
            Object session, String root, byte[] files, boolean deflated, StructType schema, Object partitions,
            long cacheBytes) throws Exception {
        FileStatus[] statuses = Files.read(files, deflated);
        FileStatusCache cache = new SharedInMemoryCache(cacheBytes, -1L).createForNewClient();
        Path folder = new Path(root);
        cache.putLeafFiles(folder, statuses);
        Map options = new HashMap();
        if (partitions == null) {
            options.put("recursiveFileLookup", "true"); // not allowed with partitions
        }
        Object spec = partitions == null ? PartitionSpec.emptySpec() : partitions;
        Object[] arguments = new Object[] {
            session, seq(new Object[] {folder}), scala.collection.immutable.Map$.MODULE$.from(CollectionConverters.asScala(options)),
            Option.apply(schema), cache, Option.apply(spec), Option.empty()
        };
        InMemoryFileIndex index = (InMemoryFileIndex) make(InMemoryFileIndex.class, arguments);
        int found = index.allFiles().size();
        return found == statuses.length ? (Object) index : Integer.valueOf(found);
    }

    /** Returns a ParquetScan. filters: a Seq of expressions by which the reader may skip, null for none. */
    public ParquetScan scan(
            Object session, InMemoryFileIndex index, StructType schema, CaseInsensitiveStringMap options, Seq filters,
            String numbers, StructType required) throws Exception {
        Object[] arguments = new Object[] {session, index, schema, schema, options};
        ParquetScanBuilder builder = (ParquetScanBuilder) make(ParquetScanBuilder.class, arguments);
        if (!numbers.isEmpty()) {
            String[] each = numbers.split(" ");
            Object[] chosen = new Object[each.length];
            for (int at = 0; at < each.length; at++) {
                chosen[at] = filters.apply(Integer.parseInt(each[at]));
            }
            builder.pushFilters(seq(chosen));
        }
        builder.pruneColumns(required);
        return builder.build();
    }

    /**
     * Returns what Spark asks of a scan while it plans, by the names of the methods. schema: of the rows, null for that of
     * the scan; filesBytes: the size of its files; key: equal for scans that read the same; columns: see references;
     * columnStatistics: by NamedReference, null for none.
     */
    public Map answers(
            ParquetScan scan, StructType schema, long filesBytes, long rows, String key, String columns, boolean isExact,
            Map columnStatistics) {
        long sizeBytes = sizeBytes(scan, filesBytes);
        Map found = new HashMap();
        found.put("readSchema", schema == null ? scan.readSchema() : schema);
        found.put("estimateStatistics", new Estimate(sizeBytes, rows, columnStatistics));
        found.put("estimateSizeInBytes", OptionalLong.of(sizeBytes));
        found.put("columnarSupportMode", Scan.ColumnarSupportMode.valueOf(isColumnar(scan) ? "SUPPORTED" : "UNSUPPORTED"));
        found.put("filterAttributes", references(columns));
        found.put("reflectsFullyPushedDownFilters", Boolean.valueOf(isExact));
        found.put("toString", key);
        return found;
    }

    /** Returns Spark's estimate of the bytes that a scan reads, or the size of its files if it has none. */
    public long sizeBytes(ParquetScan scan, long filesBytes) {
        long estimate = scan.estimateStatistics().sizeInBytes().getAsLong();
        return Math.max(1L, estimate == 0 ? filesBytes : estimate);
    }

    /**
     * Returns whether a scan returns batches of columns. The factory that knows is made without the settings of Hadoop,
     * which Spark would send to all executors for each.
     */
    public boolean isColumnar(ParquetScan scan) {
        return reader(scan).supportColumnarReads(null);
    }

    private static PartitionReaderFactory reader(ParquetScan scan) {
        try {
            Object options = make(
                Class.forName("org.apache.spark.sql.execution.datasources.parquet.ParquetOptions"),
                new Object[] {
                    scala.collection.immutable.Map$.MODULE$.from(
                        CollectionConverters.asScala(scan.options().asCaseSensitiveMap())),
                    scan.conf()
                });
            Object[] arguments = new Object[] {
                scan.conf(), null, scan.dataSchema(), scan.readDataSchema(), scan.readPartitionSchema(),
                scan.pushedFilters(), scan.pushedAggregate(), options
            };
            return (PartitionReaderFactory) make(ParquetPartitionReaderFactory.class, arguments);
        } catch (Exception error) { // another version of Spark
            return scan.toBatch().createReaderFactory();
        }
    }

    /** Returns whether Spark's optimiser uses statistics of columns. */
    public boolean wantsColumnStatistics(SQLConf settings) {
        return settings.cboEnabled() || settings.planStatsEnabled();
    }

    /** Returns options with one more, which those that are given override. */
    public CaseInsensitiveStringMap withOption(CaseInsensitiveStringMap options, String name, String value) {
        Map merged = new HashMap();
        merged.put(name, value);
        merged.putAll(options.asCaseSensitiveMap());
        return new CaseInsensitiveStringMap(merged);
    }

    /** Returns references to columns; text: their quoted names, separated by U+0000. */
    public NamedReference[] references(String text) {
        String[] names = text.isEmpty() ? new String[0] : text.split("\u0000");
        NamedReference[] made = new NamedReference[names.length];
        for (int at = 0; at < names.length; at++) {
            made[at] = Expressions.column(names[at]);
        }
        return made;
    }

    /** Returns what a scan tells of what it reads; columns: statistics by NamedReference, null for none. */
    public Statistics statistics(long sizeBytes, long rows, Map columns) {
        return new Estimate(sizeBytes, rows, columns);
    }

    static final class Estimate implements Statistics {
        private final long sizeBytes;
        private final long rows;
        private final Map columns;

        Estimate(long sizeBytes, long rows, Map columns) {
            this.sizeBytes = sizeBytes;
            this.rows = rows;
            this.columns = columns == null ? new HashMap() : columns;
        }

        public OptionalLong sizeInBytes() {
            return OptionalLong.of(sizeBytes);
        }

        public OptionalLong numRows() {
            return OptionalLong.of(rows);
        }

        public Map columnStats() {
            return columns;
        }
    }

    private static Seq seq(Object[] elements) {
        return CollectionConverters.asScala(java.util.Arrays.asList(elements)).toSeq();
    }

    /** Calls the constructor that takes these: the type of a session is not the same in every version of Spark. */
    private static Object make(Class type, Object[] arguments) throws Exception {
        Constructor[] constructors = type.getConstructors();
        for (int at = 0; at < constructors.length; at++) {
            if (takes(constructors[at].getParameterTypes(), arguments)) {
                try {
                    return constructors[at].newInstance(arguments);
                } catch (InvocationTargetException error) {
                    throw (Exception) error.getCause();
                }
            }
        }
        throw new NoSuchMethodException("constructor of " + type.getName());
    }

    private static boolean takes(Class[] types, Object[] arguments) {
        if (types.length != arguments.length) {
            return false;
        }
        for (int at = 0; at < types.length; at++) {
            if (arguments[at] != null && !types[at].isInstance(arguments[at])) {
                return false;
            }
        }
        return true;
    }
}
