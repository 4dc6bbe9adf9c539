package lamella;

import java.io.BufferedInputStream;
import java.io.ByteArrayInputStream;
import java.io.DataInputStream;
import java.io.InputStream;
import java.util.zip.InflaterInputStream;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.io.ArrayWritable;
import org.apache.hadoop.io.Writable;

/** Lists of files in the form in which Hadoop serialises them. */
public final class Files {
    private static final int BUFFER_BYTES = 65536;

    /** Returns the files of a serialised ArrayWritable of FileStatus. */
    public static FileStatus[] read(byte[] data, boolean deflated) throws Exception {
        InputStream stream = new ByteArrayInputStream(data);
        if (deflated) {
            // It is read a few bytes at a time, and without a buffer each read is a native call.
            stream = new BufferedInputStream(new InflaterInputStream(stream), BUFFER_BYTES);
        }
        ArrayWritable writable = new ArrayWritable(FileStatus.class);
        writable.readFields(new DataInputStream(stream));
        Writable[] read = writable.get(); // not a FileStatus[]
        FileStatus[] made = new FileStatus[read.length];
        System.arraycopy(read, 0, made, 0, read.length);
        return made;
    }
}
